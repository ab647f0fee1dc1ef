//! Logs and entries, a page at a time.

use std::sync::Arc;

use brooklet::io::{MemVolume, Rng};
use brooklet::{Options, Retention, Store};
use serde_json::Value;

use super::Server;

async fn server() -> (Server, Store) {
    let (server, store) = (Server::new().await, Store::in_memory(1).unwrap());
    server.watch.ready(store.clone());
    (server, store)
}

fn numbers(page: &Value) -> Vec<u64> {
    page["entries"].as_array().unwrap().iter().map(|entry| entry["seq"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn pages_of_logs_make_all_of_them_whatever_their_keys_are() {
    let (server, store) = server().await;
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![b'k', byte]).collect();
    keys.extend([b"k".to_vec(), b"k\xff\x00&=%+# ?".to_vec(), "kä\"<b>".into()]);
    keys.sort();
    keys.iter().for_each(|key| drop(store.append(key, "x").unwrap()));
    drop(store.append("other", "x").unwrap());
    store.flush().unwrap();
    for limit in [1, 7, 259, 1000] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/api/logs?prefix=k&limit={limit}{after}")).await.json();
            for log in page["logs"].as_array().unwrap() {
                let url = log["url"].as_str().unwrap();
                found.push(percent_encoding::percent_decode_str(url).collect::<Vec<u8>>());
                let (text, is_binary) = (log["key"]["text"].as_str().unwrap(), log["key"]["binary"] == true);
                assert_eq!(is_binary, std::str::from_utf8(found.last().unwrap()).is_err());
                assert!(is_binary || text.as_bytes() == found.last().unwrap());
            }
            assert!(page["logs"].as_array().unwrap().len() <= limit);
            assert!(found.len() <= keys.len(), "{limit} a page: some come again");
            let Some(next) = page["after"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(found, keys, "{limit} a page");
    }
    for key in [&b"k\xff\x00&=%+# ?"[..], "kä\"<b>".as_bytes()] {
        let url = percent_encoding::percent_encode(key, percent_encoding::NON_ALPHANUMERIC);
        let page = server.get(&format!("/api/log?key={url}")).await.json();
        assert_eq!((numbers(&page), page["url"].as_str()), (vec![0], Some(&*url.to_string())), "{key:?}");
    }
}

/// In an earlier state, a page with damage passed for whole, and the last page could not be read.
#[tokio::test]
async fn a_page_of_logs_reports_the_damage_within_it() {
    let (server, volume, mut rng) = (Server::new().await, MemVolume::new(1), Rng::new(1));
    let options = Options::new().ring_size(1 << 20).max_payload(16 << 10).threads(false).rng_seed(1);
    let store = options.create_on(Arc::new(volume.clone())).unwrap();
    for n in 0..200 {
        let noise: Vec<u8> = (0..2000).map(|_| rng.below(256) as u8).collect();
        drop(store.append(format!("log/{n:03}"), noise).unwrap());
    }
    store.checkpoint().unwrap();
    let run = store.info().unwrap().runs[0];
    volume.flip((run.offset + run.bytes / 2) as usize, 1);
    let certain = store.scan("log/").unwrap().filter(Result::is_ok).count();
    assert!((150..200).contains(&certain), "{certain} logs can be read");
    server.watch.ready(store);
    for limit in [1, 30, 1000] {
        let (mut found, mut damages, mut after) = (0, Vec::new(), String::new());
        loop {
            let reply = server.get(&format!("/api/logs?prefix=log&limit={limit}{after}")).await;
            assert_eq!(reply.status, 200, "{limit} a page");
            let page = reply.json();
            found += page["logs"].as_array().unwrap().len();
            damages.extend(page["damage"].as_str().map(str::to_owned));
            let Some(next) = page["after"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!((found, damages.len()), (certain, 1), "{limit} a page: {damages:?}");
        assert!(damages[0].contains("may be missing"), "{damages:?}");
    }
}

#[tokio::test]
async fn pages_of_entries_make_a_log_in_either_order() {
    let (server, store) = server().await;
    drop(store.append_many("log", (0..100).map(|n| format!("entry {n}"))).unwrap());
    drop(store.set_retention("log", Retention::new().entries(73)).unwrap());
    store.trim("log", 27).unwrap().wait().unwrap();
    for (order, limit) in [("newest", 10), ("oldest", 10), ("newest", 1), ("oldest", 500)] {
        let (mut found, mut from) = (Vec::new(), String::new());
        loop {
            let page =
                server.get(&format!("/api/log?key=log&order={order}&limit={limit}{from}")).await.json();
            assert_eq!((&page["first"], &page["next"]), (&27.into(), &100.into()));
            found.extend(numbers(&page));
            let Some(next) = page["from"].as_u64() else { break };
            from = format!("&from={next}");
        }
        if order == "newest" {
            found.reverse();
        }
        assert!(found.iter().copied().eq(27..100), "{order} {limit}: {found:?}");
    }
    let page = server.get("/api/log?key=log&from=50&limit=2").await.json();
    assert_eq!(page["entries"][0]["text"], "entry 50");
    assert_eq!(server.get("/api/logs").await.json()["logs"][0]["keeps_entries"], 73);
    let page = server.get("/api/log?key=log&from=7&order=oldest&limit=1").await.json();
    assert_eq!(numbers(&page), [27], "what is gone is passed by");
}

#[tokio::test]
async fn payloads_are_text_or_digits_and_pages_are_bounded() {
    let (server, store) = server().await;
    drop(store.append_many("mixed", [&b"{\"a\":1}"[..], b"\x00\xff", b"", "ä".as_bytes()]).unwrap());
    for _ in 0..40 {
        drop(store.append("large", "0123456789".repeat(20_000)).unwrap());
    }
    store.flush().unwrap();
    let page = server.get("/api/log?key=mixed&order=oldest").await.json();
    let shown =
        |n: usize| (page["entries"][n]["text"].as_str().unwrap(), page["entries"][n]["binary"] == true);
    assert_eq!([shown(0), shown(1)], [("{\"a\":1}", false), ("00ff", true)]);
    assert_eq!([shown(2), shown(3)], [("", false), ("ä", false)]);
    let answer = server.get("/api/log?key=large&limit=500").await;
    assert!(answer.body.len() < 2 << 20, "{}", answer.body.len());
    let page = answer.json();
    let entry = &page["entries"][0];
    assert_eq!((&entry["bytes"], &entry["cut"]), (&200_000.into(), &true.into()));
    assert_eq!(entry["text"].as_str().unwrap().len(), 64 << 10);
    let seen = numbers(&page);
    assert!(seen.len() < 40 && page["from"] == seen[seen.len() - 1] - 1, "the rest is on the next page");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_what_would() {
    let (server, store) = server().await;
    store.append("log", "x").unwrap().wait().unwrap();
    for (address, status, says) in [
        ("/api/log", 400, "the key is missing"),
        ("/api/log?key=", 400, "a key of 0 bytes"),
        ("/api/log?key=none", 404, "none"),
        ("/api/log?key=log&order=random", 400, "neither newest nor oldest"),
        ("/api/log?key=log&from=-1", 400, "from is not a number"),
        ("/api/logs?limit=many", 400, "limit is not a number"),
        ("/api/live?since=x", 400, "since is not a number"),
    ] {
        let answer = server.get(address).await;
        assert_eq!(answer.status, status, "{address}: {answer:?}");
        assert!(answer.json()["error"].as_str().unwrap().contains(says), "{answer:?}");
    }
    let starting = Server::new().await;
    assert_eq!(starting.get("/api/logs").await.status, 503);
    assert_eq!(starting.get("/api/live").await.json()["now"], Value::Null);
}
