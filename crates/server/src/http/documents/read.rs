//! GET and HEAD: the document now or at a version, and its updates.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use brooklet_documents::{Error, Json, Model, Refusal};
use bytes::Bytes;

use super::asked::{Asked, Part, Tags};
use super::problem::{Kind, Problem};
use super::shown::{Change, Shown, Updates, text};
use super::{Face, json};
use crate::http::budget::hold;
use crate::http::reply::{omitted, set};

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
        let document = name.clone();
        let read = move |face: &Self| {
            let version = face.version(&document)?;
            expect(&document, if_match.as_ref(), version, version)?;
            Ok(version)
        };
        let version = self.reading(&name, read).await?;
        let is_known = if_none_match.is_some_and(|tags| tags.have(version));
        let status = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
        let mut response = json(status, omitted());
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
        let document = name.clone();
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
        let ((version, is_new), body) = self.body(&document, work).await?;
        let mut response = match is_new {
            true => json(StatusCode::OK, body),
            false => json(StatusCode::NOT_MODIFIED, Body::empty()),
        };
        tag(&mut response, version);
        Ok(response)
    }

    /// Answers with the updates after a version, or with all: as many as make a chunk.
    async fn updates(self: &Arc<Self>, name: Vec<u8>, since: Option<u64>) -> Result<Response<Body>, Problem> {
        let (turn, share) = self.turn_with_memory(&name).await?;
        // The share goes with the work, which goes on where the client leaves.
        let document = name.clone();
        let read = move |face: &Self| face.read_updates(&document, since).map(|read| (read, share));
        let (read, mut share) = self.with_turn(turn, read).await?;
        let Read { mut updates, changes, len } = read;
        let version = updates.version;
        self.limits.replies.grow(&mut share, 2 * len).await?;
        updates.merged = self.merged(name, changes, len).await?;
        let body = serde_json::to_vec(&updates).expect("updates are JSON");
        drop(updates);
        self.limits.replies.grow(&mut share, body.len()).await?;
        let mut response = json(StatusCode::OK, hold(body.into(), Some(share)));
        tag(&mut response, version);
        Ok(response)
    }

    /// Reads updates without making values of them.
    fn read_updates(&self, name: &[u8], since: Option<u64>) -> Result<Read, Problem> {
        let mut reader = match since {
            Some(since) => self.documents.updates(name, since)?,
            None => self.documents.history(name)?,
        };
        let head = reader.version();
        let updates = Updates { head, version: since.unwrap_or(head), merged: None, updates: Vec::new() };
        let mut read = Read { updates, changes: Vec::new(), len: 0 };
        while read.len < self.config.chunk
            && let Some(update) = reader.next_encoded().transpose()?
        {
            let change = Change::stored(&update.change);
            let change = change.map_err(|refusal| damaged(name, update.version, &refusal))?;
            let shown = text(&Shown::new(&update, change));
            read.len += shown.get().len();
            read.updates.version = update.version;
            read.updates.updates.push(shown);
            read.changes.push((update.version, update.change));
        }
        Ok(read)
    }

    /// Returns one change with the effect of all, if there is one. It takes values in memory, and
    /// more memory than the text of all.
    async fn merged(
        self: &Arc<Self>,
        name: Vec<u8>,
        changes: Vec<(u64, Bytes)>,
        len: usize,
    ) -> Result<Option<Change>, Problem> {
        // The changes, and one of all of them.
        let weight = 2 * changes.iter().map(|(_, change)| Json::weight(change)).sum::<usize>();
        let is_large = len > 2 * self.config.chunk || weight > self.limits.values.bytes();
        if changes.is_empty() || is_large {
            return Ok(None);
        }
        let share = self.limits.values.take(weight).await?;
        let merge = move |face: &Self| {
            let _share = share;
            let model = face.documents.model();
            let decode = |(version, change): &(u64, Bytes)| {
                model.decode(change).map_err(|refusal| damaged(&name, *version, &refusal))
            };
            let changes = changes.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
            // Twice the same patches are no help.
            let merged = model.compose(&changes).filter(|merged| merged.to_json().len() <= len);
            Ok(merged.as_ref().map(Change::from))
        };
        self.blocking(&self.reads, merge).await
    }
}

/// Updates that were read, and their changes as they are stored.
struct Read {
    updates: Updates,
    /// Each with the version that it makes.
    changes: Vec<(u64, Bytes)>,
    /// Bytes of the updates.
    len: usize,
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

/// Returns the problem of an update that the document stores, and that is no change of JSON.
fn damaged(name: &[u8], version: u64, refusal: &Refusal) -> Problem {
    let document = text_of(name);
    let why = format!("the update of document {document} to version {version} is damaged: {refusal}");
    tracing::error!(%why, "a request on a document failed");
    Problem::new(Kind::Failed, format!("{why}; restore the document from a copy"))
}

/// Sets the tag of a version.
pub fn tag(response: &mut Response<Body>, version: u64) {
    set(response.headers_mut(), header::ETAG, format_args!("\"{version}\""));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brooklet::Store;
    use brooklet_documents::JsonChange;
    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::http::Config;
    use crate::http::limits::Limits;

    /// Merging the updates of a reply makes values of them, and these count.
    #[tokio::test]
    async fn values_of_updates_have_the_memory_of_values() {
        let store = Store::in_memory(1).unwrap();
        let config = Config { body_budget: 4 << 20, ..Config::default() };
        let limits = Limits::new(&config);
        let face = Face::new(&store, &config, limits, None, CancellationToken::new()).unwrap();
        face.documents.create("doc", "1", &serde_json::json!({}).into()).unwrap();
        for version in 1..3 {
            let change = JsonChange::merge(serde_json::json!({"a": vec![[version]; 1000]}));
            face.documents.patch("doc", version, format!("p{version}"), &change).unwrap();
        }
        let all = face.limits.values.take(face.limits.values.bytes()).await.unwrap();
        let reads = ["since", "history"].map(|part| {
            let (face, since) = (face.clone(), (part == "since").then_some(1));
            tokio::spawn(async move { face.updates(b"doc".to_vec(), since).await })
        });
        let mut reads = reads.into_iter();
        let (mut first, second) = (reads.next().unwrap(), reads.next().unwrap());
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut first).await.is_err());
        assert!(!second.is_finished());
        drop(all);
        for read in [first, second] {
            let body = read.await.unwrap().unwrap().into_body();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["merged"]["patch"]["a"].as_array().unwrap().len(), 1000, "{body}");
        }
        // Values that never fit are left out.
        let change = JsonChange::merge(serde_json::json!({"a": vec![[3]; 10_000]}));
        face.documents.patch("doc", 3, "large", &change).unwrap();
        let body = face.updates(b"doc".to_vec(), Some(3)).await.unwrap().into_body();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["merged"], &body["updates"][0]["version"]), (&Value::Null, &4.into()));
    }
}
