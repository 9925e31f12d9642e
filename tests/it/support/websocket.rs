//! A client of `graphql-transport-ws` that says exactly what a test wants.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{WebSocketStream, client_async};

pub const PROTOCOL: &str = "graphql-transport-ws";

/// Longer than any message takes, so that a test ends when a server hangs.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Socket {
    stream: WebSocketStream<TcpStream>,
}

impl Socket {
    /// Opens a connection with these headers, and says nothing yet. The status where it is refused.
    pub async fn try_open(
        address: SocketAddr,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        Self::over(TcpStream::connect(address).await.unwrap(), address, headers).await
    }

    async fn over(
        connection: TcpStream,
        address: SocketAddr,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        connection.set_nodelay(true).unwrap();
        let mut request = format!("ws://{address}/graphql").into_client_request().unwrap();
        let protocol = HeaderValue::from_static(PROTOCOL);
        request.headers_mut().insert("sec-websocket-protocol", protocol);
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        match client_async(request, connection).await {
            Ok((stream, _)) => Ok(Self { stream }),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens a connection, and says nothing yet.
    pub async fn open(address: SocketAddr) -> Self {
        Self::try_open(address, &[]).await.unwrap()
    }

    /// Opens a connection that takes few bytes that nobody reads.
    pub async fn open_narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        Self::over(socket.connect(address).await.unwrap(), address, &[]).await.unwrap()
    }

    /// Opens a connection and is let in as nobody in particular.
    pub async fn connect(address: SocketAddr) -> Self {
        let mut socket = Self::open(address).await;
        socket.init(Value::Null).await;
        socket
    }

    /// Opens a connection and is let in with a token.
    pub async fn connect_as(address: SocketAddr, token: &str) -> Self {
        let mut socket = Self::open(address).await;
        socket.init(json!({ "Authorization": format!("Bearer {token}") })).await;
        socket
    }

    /// Says who it is, and is let in.
    pub async fn init(&mut self, payload: Value) {
        self.send(&json!({ "type": "connection_init", "payload": payload })).await;
        assert_eq!(self.next().await, json!({ "type": "connection_ack" }));
    }

    pub async fn subscribe(&mut self, id: &str, query: &str, variables: Value) {
        let payload = json!({ "query": query, "variables": variables });
        self.send(&json!({ "id": id, "type": "subscribe", "payload": payload })).await;
    }

    pub async fn send(&mut self, message: &Value) {
        self.say(Message::text(message.to_string())).await;
    }

    pub async fn say(&mut self, message: Message) {
        self.try_say(message).await.unwrap();
    }

    /// Says something to a server that may have closed the connection.
    pub async fn try_say(&mut self, message: Message) -> Result<(), String> {
        let said = timeout(PATIENCE, self.stream.send(message)).await.expect("it can be sent");
        said.map_err(|error| error.to_string())
    }

    /// The next message; pings of WebSocket's own are not one.
    pub async fn next(&mut self) -> Value {
        match self.next_within(PATIENCE).await {
            Some(message) => message,
            None => panic!("no message"),
        }
    }

    /// The next message, if one comes in time.
    pub async fn next_within(&mut self, time: Duration) -> Option<Value> {
        let deadline = Instant::now() + time;
        loop {
            match timeout_at(deadline, self.stream.next()).await.ok()? {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("no message but {other:?}"),
            }
        }
    }

    /// The payload of the next message, which must be of this kind and operation.
    pub async fn payload(&mut self, kind: &str, id: &str) -> Value {
        let mut message = self.next().await;
        assert_eq!(
            (message["type"].as_str(), message["id"].as_str()),
            (Some(kind), Some(id)),
            "{message}"
        );
        message["payload"].take()
    }

    /// Reads on until the server closes the connection; with which code and reason.
    pub async fn closed(&mut self) -> (u16, String) {
        let read = async {
            loop {
                match self.stream.next().await {
                    Some(Ok(Message::Close(Some(frame)))) => {
                        return (frame.code.into(), frame.reason.to_string());
                    }
                    Some(Ok(_)) => {}
                    // Without a word: what a browser shows as 1006.
                    other => return (1006, format!("{other:?}")),
                }
            }
        };
        timeout(PATIENCE, read).await.expect("the server closes the connection")
    }

    /// The same, and nothing may come before it.
    pub async fn closed_at_once(&mut self) -> (u16, String) {
        let read = async {
            loop {
                match self.stream.next().await {
                    Some(Ok(Message::Close(Some(frame)))) => {
                        return (frame.code.into(), frame.reason.to_string());
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    other => panic!("not closed but {other:?}"),
                }
            }
        };
        timeout(PATIENCE, read).await.expect("the server closes the connection")
    }

    /// The code that the server closes the connection with.
    pub async fn close_code(&mut self) -> u16 {
        self.closed().await.0
    }
}
