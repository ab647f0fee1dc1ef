//! GET and HEAD: the document now or at a version, and its updates.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use brooklet_documents::{Error, JsonChange, Model};

use super::asked::{Asked, Part, Tags};
use super::problem::{Kind, Problem};
use super::shown::{Change, Shown, Updates, text};
use super::{Face, json};
use crate::http::reply::set;

impl Face {
    pub async fn get(self: &Arc<Self>, name: Vec<u8>, asked: Asked) -> Result<Response<Body>, Problem> {
        match asked.part {
            Part::Now => self.state(name, asked, None).await,
            Part::At(version) => self.state(name, asked, Some(version)).await,
            Part::Since(version) => self.updates(name, Some(version)).await,
            Part::History => self.updates(name, None).await,
            Part::Rewind(_) => Err(Problem::new(Kind::BadRequest, "rewind is for POST: send it by POST")),
        }
    }

    pub async fn head(self: &Arc<Self>, name: Vec<u8>, asked: Asked) -> Result<Response<Body>, Problem> {
        if asked.part != Part::Now {
            return Err(Problem::new(Kind::BadRequest, "HEAD is for the document as it is: omit the query"));
        }
        let Asked { if_match, if_none_match, .. } = asked;
        let read = move |face: &Self| {
            let version = face.version(&name)?;
            expect(&name, if_match.as_ref(), version, version)?;
            Ok(version)
        };
        let version = self.blocking(&self.reads, read).await?;
        let is_known = if_none_match.is_some_and(|tags| tags.have(version));
        let status = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
        let mut response = json(status, Body::empty());
        tag(&mut response, version);
        Ok(response)
    }

    /// Returns the version of a document, without its state.
    pub fn version(&self, name: &[u8]) -> Result<u64, Problem> {
        self.documents.version(name)?.ok_or_else(|| not_found(name))
    }

    /// Answers with the document, or that the client has it.
    async fn state(
        self: &Arc<Self>,
        name: Vec<u8>,
        asked: Asked,
        at: Option<u64>,
    ) -> Result<Response<Body>, Problem> {
        let work = move |face: &Self| {
            let Asked { if_match, if_none_match, .. } = &asked;
            if if_match.is_some() || if_none_match.is_some() {
                let head = face.version(&name)?;
                let version = at.unwrap_or(head);
                if version <= head {
                    expect(&name, if_match.as_ref(), version, head)?;
                }
                if version <= head && if_none_match.as_ref().is_some_and(|tags| tags.have(version)) {
                    return Ok(((version, false), Vec::new()));
                }
            }
            let found = match at {
                Some(version) => face.documents.at(&name, version)?,
                None => face.documents.get(&name)?.ok_or_else(|| not_found(&name))?,
            };
            // Another change may have come meanwhile.
            expect(&name, if_match.as_ref(), found.version, found.version)?;
            let body = serde_json::to_vec(found.state.value()).expect("a state is JSON");
            Ok(((found.version, true), body))
        };
        let ((version, is_new), body) = self.body(work).await?;
        let mut response = match is_new {
            true => json(StatusCode::OK, body),
            false => json(StatusCode::NOT_MODIFIED, Body::empty()),
        };
        tag(&mut response, version);
        Ok(response)
    }

    /// Answers with the updates after a version, or with all: as many as make a chunk.
    async fn updates(self: &Arc<Self>, name: Vec<u8>, since: Option<u64>) -> Result<Response<Body>, Problem> {
        let (version, body) = self.body(move |face| face.read_updates(&name, since)).await?;
        let mut response = json(StatusCode::OK, body);
        tag(&mut response, version);
        Ok(response)
    }

    fn read_updates(&self, name: &[u8], since: Option<u64>) -> Result<(u64, Vec<u8>), Problem> {
        let mut reader = match since {
            Some(since) => self.documents.updates(name, since)?,
            None => self.documents.history(name)?,
        };
        let head = reader.version();
        let (mut updates, mut changes, mut len) = (Vec::new(), Vec::<JsonChange>::new(), 0);
        let mut version = since.unwrap_or(head);
        while len < self.config.chunk
            && let Some(update) = reader.next().transpose()?
        {
            let shown = text(&Shown::from(&update));
            len += shown.get().len();
            version = update.version;
            updates.push(shown);
            changes.push(update.change);
        }
        let merged = (!changes.is_empty()).then(|| self.documents.model().compose(&changes)).flatten();
        // Twice the same patches are no help.
        let merged = merged.filter(|merged| merged.to_json().len() <= len).as_ref().map(Change::from);
        let body = Updates { head, version, merged, updates };
        Ok((version, serde_json::to_vec(&body).expect("updates are JSON")))
    }
}

impl Tags {
    /// Returns whether a tag of a document that exists is among these.
    pub fn have(&self, version: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Versions(versions) => versions.contains(&version),
        }
    }
}

/// Refuses to answer with a version that `If-Match` does not name.
fn expect(name: &[u8], tags: Option<&Tags>, version: u64, head: u64) -> Result<(), Problem> {
    match tags {
        Some(tags) if !tags.have(version) => {
            let expected = if let Tags::Versions(versions) = tags { versions.first() } else { None };
            let (document, expected) = (text_of(name), expected.copied().unwrap_or(0));
            Err(Error::Conflict { document, expected, head }.into())
        }
        _ => Ok(()),
    }
}

fn text_of(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}

pub fn not_found(name: &[u8]) -> Problem {
    Error::NotFound { document: text_of(name) }.into()
}

/// Sets the tag of a version.
pub fn tag(response: &mut Response<Body>, version: u64) {
    set(response.headers_mut(), header::ETAG, format_args!("\"{version}\""));
}
