//! DELETE, and expiry. A stream with forks stays for them, hidden; the removal of the last fork
//! removes it, too, and so on for its own source, all in one commit.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use brooklet::Ticket;

use super::Streams;
use super::draft::Draft;
use super::metadata::Change;
use super::name::Name;
use super::stream::{Stream, Written};
use crate::http::reply::Refusal;

/// Why a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Asked,
    Expired,
}

/// Streams that went, and versions of them: a reader sees none of these streams once the versions
/// are seen. Each of them is told by itself that their commit is durable.
pub type Removed = Vec<(Arc<Stream>, u64)>;

/// Waits until all of that is durable, and seen.
pub async fn settled(removed: Removed) -> Result<(), Refusal> {
    for (stream, version) in removed {
        stream.settled(version).await?;
    }
    Ok(())
}

impl Streams {
    pub async fn delete(self: &Arc<Self>, stream: &Arc<Stream>) -> Result<Response<Body>, Refusal> {
        let removed = self.write(stream, |streams, stream| streams.remove(stream, Why::Asked)).await?;
        settled(removed).await?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    /// Removes a stream, if it is there; gives what must be durable before anyone is told.
    pub fn remove(&self, stream: &Arc<Stream>, why: Why) -> Result<Removed, Refusal> {
        // Only who holds this takes a second turn while in one.
        let _family = self.family.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut written = stream.turn(&self.store)?;
        match (why, &written.metadata) {
            (Why::Asked, _) => _ = stream.alive(&written)?,
            (Why::Expired, Some(metadata)) if !metadata.gone && stream.is_expired(&metadata.identity) => {}
            (Why::Expired, _) => return Ok(vec![(stream.clone(), written.version())]),
        }
        if written.metadata.as_ref().is_some_and(|metadata| metadata.forks > 0) {
            let change = Change { gone: true, ..Change::default() };
            self.commit(stream, &mut written, &change, &[])?;
            return Ok(vec![(stream.clone(), written.version())]);
        }
        let mut removed = Removed::new();
        // Whoever asked waits for the versions.
        drop(self.erase(stream, &mut written, Draft::default(), &mut Vec::new(), &mut removed)?);
        Ok(removed)
    }

    /// Commits the removal of streams, during the turns of all of them.
    fn commit_removal(&self, draft: &Draft, leaving: &[Arc<Stream>]) -> Result<Ticket, Refusal> {
        let ticket = draft.commit(&self.store)?;
        leaving.iter().for_each(|stream| stream.leave());
        Ok(ticket)
    }

    /// Erases a stream, and those that were kept for it alone, with what is drafted already for the
    /// streams that are leaving.
    fn erase(
        &self,
        stream: &Arc<Stream>,
        written: &mut Written,
        mut draft: Draft,
        leaving: &mut Vec<Arc<Stream>>,
        removed: &mut Removed,
    ) -> Result<Ticket, Refusal> {
        written.draft_removal(&stream.name, &mut draft);
        leaving.push(stream.clone());
        let fork = written.metadata.as_ref().and_then(|metadata| metadata.identity.fork.as_ref());
        let source = fork.and_then(|fork| Some((fork.depth, Name::new(&fork.source).ok()?)));
        let ticket = match source {
            Some((depth, name)) => self.release(&self.registry.get(&name), depth, draft, leaving, removed),
            None => self.commit_removal(&draft, leaving),
        };
        let ticket = ticket.inspect_err(|refusal| written.invalidate(refusal))?;
        written.removed();
        removed.push((stream.clone(), stream.announce(written, &ticket)));
        Ok(ticket)
    }

    /// One fork less of a stream.
    fn release(
        &self,
        source: &Arc<Stream>,
        depth: u32,
        mut draft: Draft,
        leaving: &mut Vec<Arc<Stream>>,
        removed: &mut Removed,
    ) -> Result<Ticket, Refusal> {
        let mut written = source.turn(&self.store)?;
        // One that is no nearer to the root is no source of it: that way there is no end.
        let metadata = written.metadata.as_ref().filter(|metadata| metadata.identity.depth() < depth);
        let Some(metadata) = metadata else { return self.commit_removal(&draft, leaving) };
        let forks = metadata.forks.saturating_sub(1);
        if metadata.gone && forks == 0 {
            return self.erase(source, &mut written, draft, leaving, removed);
        }
        let change = Change { forks: Some(forks), ..Change::default() };
        written.draft_change(&source.name, &change, &mut draft);
        let ticket =
            self.commit_removal(&draft, leaving).inspect_err(|refusal| written.invalidate(refusal))?;
        written.changed(&change);
        source.announce(&mut written, &ticket);
        Ok(ticket)
    }
}
