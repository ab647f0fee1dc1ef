//! A log whose servers are away for a while. A server of the test speaks as much of the protocol of
//! NATS as a log needs.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::place::{Epoch, Place};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

const GREETING: &str = concat!(
    r#"INFO {"server_id":"a","version":"2.12.0","proto":1,"headers":true,"#,
    r#""jetstream":true,"max_payload":1048576}"#
);
/// The stream, as the server describes it.
const STREAM: &str = concat!(
    r#"{"config":{"name":"logs","subjects":["brooklet.logs.>"],"retention":"limits","discard":"new","#,
    r#""storage":"file","num_replicas":1,"allow_rollup_hdrs":true,"allow_atomic":true},"#,
    r#""created":"2026-01-01T00:00:00Z","state":{"messages":0,"bytes":0,"consumer_count":0,"#,
    r#""first_seq":0,"first_ts":"2026-01-01T00:00:00Z","last_seq":0,"last_ts":"2026-01-01T00:00:00Z"}}"#
);
const CREATED: &str = r#"{"stream":"logs","seq":1}"#;

/// Serves until an object with the text `last` was created. Returns the texts of all objects.
fn serve(listener: &TcpListener, last: &str) -> Vec<String> {
    let mut objects = Vec::new();
    loop {
        let (client, _) = listener.accept().unwrap();
        // The client may have given this connection up before.
        if talk(&client, last, &mut objects).is_ok() {
            return objects;
        }
    }
}

fn talk(client: &TcpStream, last: &str, objects: &mut Vec<String>) -> io::Result<()> {
    let (mut lines, mut out) = (BufReader::new(client), client);
    let mut inbox = String::new();
    write!(out, "{GREETING}\r\n")?;
    while objects.last().is_none_or(|text| text != last) {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (reply, head, bytes) = match words[..] {
            ["PING"] => {
                out.write_all(b"PONG\r\n")?;
                continue;
            }
            ["SUB", _, number] => {
                inbox = number.to_owned();
                continue;
            }
            ["PUB", _, reply, bytes] => (reply, None, bytes),
            ["HPUB", _, reply, head, bytes] => (reply, Some(head), bytes),
            _ => continue,
        };
        let number = |text: &str| text.parse::<usize>().unwrap();
        // The end of the line follows.
        let mut data = vec![0; number(bytes) + 2];
        lines.read_exact(&mut data)?;
        let text = match head {
            None => STREAM,
            Some(head) => {
                let object = &data[number(head)..number(bytes)];
                objects.push(String::from_utf8_lossy(object).into_owned());
                CREATED
            }
        };
        write!(out, "MSG {reply} {inbox} {}\r\n{text}\r\n", text.len())?;
    }
    Ok(())
}

/// In the old state the client kept each of them, with its bytes, and sent all of them first.
#[test]
fn requests_that_were_given_up_are_not_sent_once_the_servers_are_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("nats://{}/logs?replicas=1", listener.local_addr().unwrap());
    let log = JetStream::open(&address).unwrap().patience(LONG);
    let hasty = log.clone().patience(SHORT);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let create = |log: &JetStream, number: u64, text: &'static str| {
        let key = Key::Log(Place { epoch: Epoch(1), number });
        runtime.block_on(log.create(key, Bytes::from_static(text.as_bytes())))
    };
    let create_served = |number: u64, text: &'static str| {
        let (listener, (done, served)) = (listener.try_clone().unwrap(), mpsc::channel());
        let serve = move || done.send(serve(&listener, text));
        drop(thread::Builder::new().spawn(serve).unwrap());
        assert_eq!(create(&log, number, text).unwrap(), Created::Done);
        served.recv().unwrap()
    };
    assert_eq!(create_served(0, "first"), ["first"]);
    runtime.block_on(async {
        let client = &log.ready().await.unwrap().client;
        while client.connection_state() == State::Connected {
            sleep(BLINK).await;
        }
    });
    for number in 1..9 {
        let error = create(&hasty, number, "given up").map(drop).unwrap_err();
        assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
    }
    assert_eq!(create_served(9, "last"), ["last"]);
}
