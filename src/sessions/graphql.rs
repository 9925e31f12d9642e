//! Sessions in the API: thin types and resolvers.

use std::sync::Arc;

use async_graphql::{Context, Enum, ID, InputObject, Object, Result, SimpleObject};
use uuid::Uuid;

use super::model::{MAX_AGENT_CHARS, MAX_DEVICE_CHARS, Noted, Session};
use crate::error::{Error, ErrorCode, UserError};
use crate::geo_zone::{GeoZone, MAX_ZONE_CHARS};
use crate::graphql::{ContextExt, DateTimeScalar, RequestContext, Viewer};
use crate::input::argument_fault;

/// Reads who asks.
#[derive(Default)]
pub struct SessionQuery;

#[Object]
impl SessionQuery {
    /// Who asks: what the token in the `Authorization` header says.
    async fn viewer(&self) -> ViewerNode {
        ViewerNode
    }
}

/// Who asks.
pub struct ViewerNode;

/// Whether somebody is known, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum ViewerKind {
    /// Somebody without a token.
    Anonymous,
    /// A guest with the token of a session.
    Guest,
    /// A customer.
    Customer,
    /// A member of staff.
    Staff,
}

/// Who asks.
#[Object(name = "Viewer")]
impl ViewerNode {
    /// Whether they are known, and as what.
    async fn kind(&self, ctx: &Context<'_>) -> Result<ViewerKind> {
        Ok(match ctx.request()?.caller.viewer {
            Viewer::Anonymous => ViewerKind::Anonymous,
            Viewer::Guest(_) => ViewerKind::Guest,
            Viewer::Customer(_) => ViewerKind::Customer,
            Viewer::Staff(_) => ViewerKind::Staff,
        })
    }

    /// The id of the customer or member of staff; a guest's is that of the session.
    async fn id(&self, ctx: &Context<'_>) -> Result<Option<ID>> {
        Ok(match &ctx.request()?.caller.viewer {
            Viewer::Anonymous => None,
            Viewer::Guest(session) => Some(ID(session.simple().to_string())),
            Viewer::Customer(id) | Viewer::Staff(id) => Some(ID(id.clone())),
        })
    }

    /// Their sessions that go on, newest first; at most 50. A guest has one.
    async fn sessions(&self, ctx: &Context<'_>) -> Result<Vec<SessionNode>> {
        let request = ctx.request()?;
        let current = request.caller.session.as_ref();
        let sessions = match &request.caller.viewer {
            Viewer::Anonymous => Vec::new(),
            Viewer::Guest(_) => {
                current.map(|session| session.as_ref().clone()).into_iter().collect()
            }
            Viewer::Customer(user) | Viewer::Staff(user) => {
                request.shop.sessions.sessions_of(user).await?
            }
        };
        let current = current.map(|session| session.id);
        Ok(sessions.into_iter().map(|session| SessionNode::new(session, current)).collect())
    }
}

/// A visit.
#[derive(SimpleObject)]
#[graphql(name = "Session")]
pub struct SessionNode {
    /// Names the session, for `sessionEnd`. It is no secret: what counts is the token.
    id: ID,
    /// What the frontend said it runs on.
    device_type: Option<String>,
    /// Where the visitor wants to buy.
    geo_zone: Option<String>,
    /// When it began.
    created_at: DateTimeScalar,
    /// When it was last used, to the minute.
    last_activity: DateTimeScalar,
    /// Whether this request belongs to it.
    current: bool,
}

impl SessionNode {
    fn new(session: Session, current: Option<Uuid>) -> Self {
        Self {
            id: ID(session.id.simple().to_string()),
            device_type: session.noted.device_type,
            geo_zone: session.noted.geo_zone.map(|zone| zone.as_str().to_owned()),
            created_at: DateTimeScalar(session.created_at),
            last_activity: DateTimeScalar(session.last_activity),
            current: Some(session.id) == current,
        }
    }
}

/// Changes of sessions.
#[derive(Default)]
pub struct SessionMutation;

#[Object]
impl SessionMutation {
    /// Begins a session: of a guest, or of the customer whose token of the identity provider is
    /// sent. Send the token that comes back as `Authorization: Bearer …` from then on. A session
    /// ends after 24 hours without activity; a guest may come back for 30 days, and finds the cart.
    async fn session_start(
        &self,
        ctx: &Context<'_>,
        input: Option<SessionInput>,
    ) -> Result<SessionPayload> {
        let request = ctx.request()?;
        let caller = &request.caller;
        let user: Option<Arc<str>> = match &caller.viewer {
            Viewer::Anonymous | Viewer::Guest(_) => None,
            // Whoever has got hold of a session must not make more of them.
            _ if caller.session.is_some() => {
                let message = "Send the token of the identity provider to begin another session.";
                return Err(Error::Forbidden(message).into());
            }
            Viewer::Customer(id) | Viewer::Staff(id) => Some(id.as_str().into()),
        };
        let noted = match note(input.unwrap_or_default(), request) {
            Ok(noted) => noted,
            Err(user_errors) => {
                return Ok(SessionPayload { session: None, token: None, user_errors });
            }
        };
        let (session, token) = request.shop.sessions.start(user, noted).await?;
        let current = Some(session.id);
        Ok(SessionPayload {
            session: Some(SessionNode::new(session, current)),
            token: Some(token),
            user_errors: Vec::new(),
        })
    }

    /// Ends a session: the one that this request belongs to, or another one of the same customer.
    /// Its token is refused everywhere within a second, and for good.
    async fn session_end(&self, ctx: &Context<'_>, id: Option<ID>) -> Result<SessionEndPayload> {
        let request = ctx.request()?;
        let caller = &request.caller;
        let current = caller.session.as_ref().map(|session| session.id);
        let refuse = |code, message: &str| {
            let field = Some(vec!["id".to_owned()]);
            let error = UserError { code, field, message: message.to_owned() };
            Ok(SessionEndPayload { ended_id: None, user_errors: vec![error] })
        };
        let user = match &caller.viewer {
            Viewer::Anonymous => {
                let message = "This needs the token of a session, or of a customer.";
                return Err(Error::Unauthenticated(message).into());
            }
            Viewer::Guest(_) => None,
            Viewer::Customer(id) | Viewer::Staff(id) => Some(id.as_str()),
        };
        let wanted = match &id {
            Some(id) => Uuid::try_parse(id).ok(),
            None if current.is_none() => {
                return refuse(ErrorCode::Blank, "This request belongs to no session; name one.");
            }
            None => current,
        };
        // A guest's is one's own only if it is this one; whether there are others is not told.
        let is_own = |session: &Session| match user {
            Some(user) => session.user.as_deref() == Some(user),
            None => Some(session.id) == current,
        };
        let ended = match wanted {
            Some(wanted) => request.shop.sessions.end(wanted, is_own).await?,
            None => false,
        };
        if !ended {
            return refuse(ErrorCode::NotFound, "You have no such session.");
        }
        let ended_id = wanted.map(|id| ID(id.simple().to_string()));
        Ok(SessionEndPayload { ended_id, user_errors: Vec::new() })
    }
}

fn note(input: SessionInput, request: &RequestContext) -> Result<Noted, Vec<UserError>> {
    let check = |name, text: &Option<String>, most| {
        text.as_deref().and_then(|text| argument_fault(&["input", name], text, most))
    };
    let device = check("deviceType", &input.device_type, MAX_DEVICE_CHARS);
    let zone = check("geoZone", &input.geo_zone, MAX_ZONE_CHARS);
    let errors: Vec<_> = [device, zone].into_iter().flatten().collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let origin = &request.caller.origin;
    let agent = origin.user_agent.as_ref();
    Ok(Noted {
        device_type: input.device_type,
        geo_zone: input.geo_zone.map(GeoZone::new_unchecked),
        user_agent: agent.map(|agent| agent.chars().take(MAX_AGENT_CHARS).collect()),
        address: origin.address.map(|address| address.to_string()),
    })
}

/// What a frontend knows of its visitor.
#[derive(InputObject, Default)]
pub struct SessionInput {
    /// What it runs on, such as `web` or `ios`: 1 to 40 characters.
    device_type: Option<String>,
    /// Where the visitor wants to buy: 1 to 64 characters.
    geo_zone: Option<String>,
}

/// What `sessionStart` did.
#[derive(SimpleObject)]
pub struct SessionPayload {
    /// The session that has begun.
    session: Option<SessionNode>,
    /// Its token, for the `Authorization` header. Keep it: it is told this once.
    token: Option<String>,
    /// What is wrong with the input; empty if a session has begun.
    user_errors: Vec<UserError>,
}

/// What `sessionEnd` did.
#[derive(SimpleObject)]
pub struct SessionEndPayload {
    /// The session that was ended.
    ended_id: Option<ID>,
    /// Why none was; empty if one was.
    user_errors: Vec<UserError>,
}
