//! PUT, PATCH, POST and DELETE: changes of a document at an expected version, once for each
//! `Idempotency-Key`.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderName, Response, StatusCode, header};
use brooklet_documents::{Answer, Error, Json, JsonChange};
use serde_json::json;

use super::asked::{Asked, Part, Tags};
use super::body::Taken;
use super::problem::{Kind, Problem};
use super::read::tag;
use super::{Face, json as reply};
use crate::http::reply::set;

pub const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The types of patches.
pub const PATCHES: &str = "application/merge-patch+json, application/json-patch+json";

/// Number of times that a change at any version begins again because another change was first.
const RETRIES: u32 = 100;

impl Face {
    /// Creates a document, or replaces it.
    pub async fn put(
        self: &Arc<Self>,
        name: Vec<u8>,
        asked: Asked,
        body: Taken,
    ) -> Result<Response<Body>, Problem> {
        expect_no_part(&asked)?;
        if let Some(other) = asked.content_type.as_deref().filter(|kind| *kind != "application/json") {
            let why = format!("a document cannot be put as {other}: use application/json");
            return Err(Problem::new(Kind::MediaType, why).with(ACCEPT_PATCH, PATCHES));
        }
        match (asked.if_match.clone(), asked.if_none_match.clone()) {
            (None, Some(Tags::Any)) => {
                let document = name.clone();
                let create = move |face: &Self| {
                    let state = Json::parse(body.text())?;
                    let answer = face.documents.create(&name, asked.request, &state)?;
                    Ok(face.note(&name, answer, body.text().len()))
                };
                Ok(answer(StatusCode::CREATED, self.writing(&document, create).await?))
            }
            (Some(tags), None) => {
                let document = name.clone();
                let replace = move |face: &Self| {
                    let change = JsonChange::replace(Json::parse(body.text())?.into_value());
                    let answer = face.at_version(&name, &tags, |version| {
                        face.documents.patch(&name, version, asked.request.clone(), &change)
                    })?;
                    Ok(face.note(&name, answer, body.text().len()))
                };
                Ok(answer(StatusCode::OK, self.change(&document, false, replace).await?))
            }
            (None, None) => Err(condition_missing()),
            (None, Some(Tags::Versions(_))) => {
                let why = "If-None-Match of PUT has to be *, to create: send If-Match to replace";
                Err(Problem::new(Kind::BadRequest, why))
            }
            (Some(_), Some(_)) => {
                let why = "the conditions exclude each other: send If-None-Match: * to create, or If-Match to replace";
                Err(Problem::new(Kind::BadRequest, why))
            }
        }
    }

    pub async fn patch(
        self: &Arc<Self>,
        name: Vec<u8>,
        asked: Asked,
        body: Taken,
    ) -> Result<Response<Body>, Problem> {
        expect_no_part(&asked)?;
        let parse = match asked.content_type.as_deref() {
            Some("application/merge-patch+json") => JsonChange::parse_merge,
            Some("application/json-patch+json") => JsonChange::parse_patch,
            other => {
                let why =
                    format!("{} is no type of a patch: use one of {PATCHES}", other.unwrap_or("no type"));
                return Err(Problem::new(Kind::MediaType, why).with(ACCEPT_PATCH, PATCHES));
            }
        };
        let tags = only_if_match(&asked)?;
        let document = name.clone();
        let work = move |face: &Self| {
            let change = parse(body.text())?;
            let answer = face.at_version(&name, &tags, |version| {
                face.documents.patch(&name, version, asked.request.clone(), &change)
            })?;
            Ok(face.note(&name, answer, body.text().len()))
        };
        Ok(answer(StatusCode::OK, self.change(&document, false, work).await?))
    }

    /// Goes back to an earlier version.
    pub async fn post(self: &Arc<Self>, name: Vec<u8>, asked: Asked) -> Result<Response<Body>, Problem> {
        let Part::Rewind(to) = asked.part else {
            let why = "POST is for ?rewind=VERSION: change a document by PATCH, and create it by PUT";
            return Err(Problem::new(Kind::BadRequest, why));
        };
        let tags = only_if_match(&asked)?;
        let document = name.clone();
        let work = move |face: &Self| {
            let answer = face.at_version(&name, &tags, |version| {
                face.documents.rewind(&name, version, asked.request.clone(), to)
            })?;
            Ok(face.note(&name, answer, 0))
        };
        Ok(answer(StatusCode::OK, self.change(&document, true, work).await?))
    }

    pub async fn delete(self: &Arc<Self>, name: Vec<u8>, asked: Asked) -> Result<Response<Body>, Problem> {
        expect_no_part(&asked)?;
        let (tags, document) = (only_if_match(&asked)?, name.clone());
        let work = move |face: &Self| match tags {
            // A document that is damaged has no version.
            Tags::Any => Ok(face.documents.discard(&name)?),
            tags => face.at_version(&name, &tags, |version| face.documents.delete(&name, version)),
        };
        self.writing(&document, work).await?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    /// Makes a change at the version that the tags name. A request that happened before gets its
    /// first answer, whatever the version is now: the change itself notices.
    fn at_version<T>(
        &self,
        name: &[u8],
        tags: &Tags,
        change: impl Fn(u64) -> Result<T, Error>,
    ) -> Result<T, Problem> {
        match tags {
            Tags::Versions(versions) if versions.len() == 1 => Ok(change(versions[0])?),
            Tags::Versions(versions) => {
                let head = self.version(name)?;
                // No document is at version 0.
                let other = versions.first().copied().unwrap_or(0);
                Ok(change(if versions.contains(&head) { head } else { other })?)
            }
            Tags::Any => {
                let mut retry = 0;
                loop {
                    match change(self.version(name)?) {
                        Err(Error::Conflict { .. }) if retry < RETRIES => retry += 1,
                        done => return Ok(done?),
                    }
                }
            }
        }
    }
}

fn expect_no_part(asked: &Asked) -> Result<(), Problem> {
    match asked.part {
        Part::Now => Ok(()),
        _ => Err(Problem::new(Kind::BadRequest, "the query is not for this method: omit it")),
    }
}

/// Returns the condition of a change, which has one.
fn only_if_match(asked: &Asked) -> Result<Tags, Problem> {
    if asked.if_none_match.is_some() {
        let why = "If-None-Match is for PUT, GET and HEAD: send If-Match alone";
        return Err(Problem::new(Kind::BadRequest, why));
    }
    asked.if_match.clone().ok_or_else(condition_missing)
}

fn condition_missing() -> Problem {
    let why = "the request does not name the version that it is for: send If-Match: \"VERSION\", or If-None-Match: * by PUT to create the document";
    Problem::new(Kind::ConditionMissing, why)
}

/// Answers a change: the same again for a request that comes again, apart from one header.
fn answer(status: StatusCode, Answer { version, repeated }: Answer) -> Response<Body> {
    let mut response = reply(status, json!({"version": version}).to_string());
    tag(&mut response, version);
    set(response.headers_mut(), header::CACHE_CONTROL, "no-store");
    if repeated {
        set(response.headers_mut(), IDEMPOTENCY_REPLAYED, "true");
    }
    response
}
