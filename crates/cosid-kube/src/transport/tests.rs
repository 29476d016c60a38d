use std::io::Write as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;

const DEADLINE: Duration = Duration::from_secs(1);

/// What the server does about a request.
enum Reply {
    Says(u16, &'static str),
    /// Reads no further and answers nothing; the connection stays open.
    Hangs,
    /// A head and the beginning of a body, then nothing.
    Stalls,
    /// A body of so many bytes.
    Sends(usize),
}

/// A request as the server saw it.
#[derive(Debug)]
struct Seen {
    connection: usize,
    head: String,
    body: String,
}

impl Seen {
    fn token(&self) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix("authorization: Bearer "))
    }
}

/// A server on loopback that does what the test says with each request, in order.
struct Server {
    uri: Uri,
    seen: mpsc::UnboundedReceiver<Seen>,
    replies: mpsc::UnboundedSender<Reply>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/prefix/", listener.local_addr().unwrap()).parse().unwrap();
        let (sender, seen) = mpsc::unbounded_channel();
        let (replies, script) = mpsc::unbounded_channel();
        let script = Arc::new(tokio::sync::Mutex::new(script));
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(connection, stream, sender.clone(), Arc::clone(&script)));
            }
        });
        Self { uri, seen, replies }
    }

    fn replies(&self, replies: impl IntoIterator<Item = Reply>) {
        for reply in replies {
            assert!(self.replies.send(reply).is_ok());
        }
    }

    fn config(&self) -> Config {
        Config::new(self.uri.clone())
    }

    fn client(&self) -> Client {
        client(&self.config(), DEADLINE, ApiClock::default()).unwrap()
    }

    async fn request(&mut self) -> Seen {
        self.seen.recv().await.unwrap()
    }
}

async fn serve(
    connection: usize,
    mut stream: TcpStream,
    seen: mpsc::UnboundedSender<Seen>,
    script: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Reply>>>,
) {
    while let Some((head, body)) = read(&mut stream).await {
        let reply = script.lock().await.recv().await;
        let _ = seen.send(Seen { connection, head, body });
        match reply {
            Some(Reply::Says(code, body)) => {
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {code} x\r\ndate: Tue, 14 Nov 2023 22:13:20 GMT\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            Some(Reply::Stalls) => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbeg").await.unwrap();
                std::future::pending().await
            }
            Some(Reply::Sends(length)) => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                let piece = vec![b' '; 1 << 16];
                // The client hangs up where it is too much.
                while stream.write_all(&piece).await.is_ok() {}
                return;
            }
            Some(Reply::Hangs) | None => std::future::pending().await,
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, String::from_utf8(body).unwrap()))
}

async fn get(client: &Client) -> Result<(u16, String), Error> {
    send(client, Request::get("/version").body(Vec::new()).unwrap()).await
}

async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<(u16, String), Error> {
    let answer = client.send(request.map(Body::from)).await.map_err(|error| match error {
        kube::Error::Service(error) => *error.downcast::<Error>().unwrap(),
        other => panic!("{other}"),
    })?;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap();
    Ok((code, String::from_utf8(body.to_vec()).unwrap()))
}

#[tokio::test]
async fn calls_go_to_the_servers_own_path_on_one_connection() {
    let mut server = Server::start().await;
    let client = server.client();
    for _ in 0..3 {
        server.replies([Reply::Says(200, "ok")]);
        assert_eq!(get(&client).await.unwrap(), (200, "ok".into()));
        let seen = server.request().await;
        assert_eq!(seen.connection, 0);
        assert!(seen.head.starts_with("GET /prefix/version HTTP/1.1\r\n"), "{}", seen.head);
        assert!(seen.head.contains(&format!("user-agent: {OUR_NAME}\r\n")), "{}", seen.head);
    }
}

#[tokio::test]
async fn a_call_without_an_answer_ends_at_its_deadline_and_the_next_has_a_fresh_connection() {
    let mut server = Server::start().await;
    let client = server.client();
    for reply in [Reply::Hangs, Reply::Stalls] {
        server.replies([Reply::Says(200, ""), reply]);
        get(&client).await.unwrap();
        let before = server.request().await.connection;
        assert!(matches!(get(&client).await, Err(Error::Deadline(DEADLINE))));
        assert_eq!(server.request().await.connection, before);
        server.replies([Reply::Says(200, "")]);
        get(&client).await.unwrap();
        assert!(server.request().await.connection > before);
    }
}

#[tokio::test]
async fn idle_connections_go_too_when_another_one_hangs() {
    let mut server = Server::start().await;
    let client = server.client();
    server.replies([Reply::Says(200, ""), Reply::Says(200, "")]);
    let (first, second) = tokio::join!(get(&client), get(&client));
    assert!(first.is_ok() && second.is_ok());
    let before = server.request().await.connection.max(server.request().await.connection);
    server.replies([Reply::Hangs]);
    assert!(get(&client).await.is_err());
    server.request().await;
    server.replies([Reply::Says(200, "")]);
    get(&client).await.unwrap();
    assert!(server.request().await.connection > before, "not the other idle one");
}

#[tokio::test]
async fn a_call_that_its_caller_gave_up_leaves_no_connection_behind() {
    let mut server = Server::start().await;
    let client = server.client();
    server.replies([Reply::Hangs]);
    let before = tokio::select! {
        answer = get(&client) => panic!("{answer:?}"),
        seen = server.request() => seen.connection,
    };
    server.replies([Reply::Says(200, "")]);
    get(&client).await.unwrap();
    assert!(server.request().await.connection > before);
}

#[tokio::test]
async fn nothing_is_tried_twice_whatever_the_server_says() {
    let mut server = Server::start().await;
    let client = server.client();
    for code in [429, 500, 503, 504] {
        server.replies([Reply::Says(code, "busy"), Reply::Says(200, "last")]);
        let put = || Request::put("/x").body(b"{}".to_vec()).unwrap();
        assert_eq!(send(&client, put()).await.unwrap(), (code, "busy".into()));
        assert_eq!(server.request().await.body, "{}");
        assert_eq!(get(&client).await.unwrap().1, "last");
        assert!(server.request().await.head.starts_with("GET"), "{code}: the next request is ours");
    }
}

#[tokio::test]
async fn a_token_that_was_replaced_is_shown_at_once_after_a_401() {
    let mut server = Server::start().await;
    let mut token = tempfile::NamedTempFile::new().unwrap();
    writeln!(token, "one").unwrap();
    let mut config = server.config();
    config.auth_info.token_file = Some(token.path().to_str().unwrap().to_owned());
    let client = client(&config, DEADLINE, ApiClock::default()).unwrap();
    server.replies([Reply::Says(200, "")]);
    get(&client).await.unwrap();
    assert_eq!(server.request().await.token(), Some("one"));

    std::fs::write(token.path(), "two").unwrap();
    server.replies([Reply::Says(200, ""), Reply::Says(401, ""), Reply::Says(200, "written")]);
    get(&client).await.unwrap();
    assert_eq!(server.request().await.token(), Some("one"), "it is not read for every call");
    let put = Request::put("/x").body(b"{\"a\":1}".to_vec()).unwrap();
    assert_eq!(send(&client, put).await.unwrap(), (200, "written".into()));
    assert_eq!(server.request().await.token(), Some("one"));
    let again = server.request().await;
    assert_eq!((again.token(), again.body.as_str()), (Some("two"), "{\"a\":1}"));

    // The same one again would be turned down again.
    server.replies([Reply::Says(401, "no")]);
    assert_eq!(get(&client).await.unwrap(), (401, "no".into()));
    assert_eq!(server.request().await.token(), Some("two"));
    // What can't be read any more was good a moment ago.
    token.close().unwrap();
    server.replies([Reply::Says(401, "no")]);
    assert_eq!(get(&client).await.unwrap().0, 401);
}

#[tokio::test]
async fn a_token_file_that_is_not_there_is_named() {
    let server = Server::start().await;
    let mut config = server.config();
    config.auth_info.token_file = Some("/nowhere/token".into());
    let client = client(&config, DEADLINE, ApiClock::default()).unwrap();
    assert!(get(&client).await.unwrap_err().to_string().starts_with("can't read /nowhere/token"));
}

#[tokio::test]
async fn every_answer_shows_the_servers_time() {
    let server = Server::start().await;
    let clock = ApiClock::default();
    let client = client(&server.config(), DEADLINE, clock.clone()).unwrap();
    server.replies([Reply::Says(500, "")]);
    get(&client).await.unwrap();
    let time = clock.now().unwrap();
    assert!((1_700_000_000_999..1_700_000_000_999 + 5_000).contains(&time.latest), "{time:?}");
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let server = Server::start().await;
    let client = client(&server.config(), Duration::from_secs(60), ApiClock::default()).unwrap();
    server.replies([Reply::Sends(LONGEST + 1)]);
    assert!(matches!(get(&client).await, Err(Error::TooLong { limit: LONGEST })));
}

#[tokio::test]
async fn a_watch_outlives_the_deadline_of_a_call() {
    let mut server = Server::start().await;
    let client = server.client();
    server.replies([Reply::Stalls]);
    let watch = Request::get("/pods?watch=true").body(Vec::new()).unwrap();
    let answer = client.send(watch.map(Body::from)).await.unwrap();
    server.request().await;
    let mut body = answer.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "beg");
    let more = tokio::time::timeout(DEADLINE * 2, body.frame()).await;
    assert!(more.is_err(), "it goes on");
}

#[test]
fn a_configuration_that_cannot_work_says_what_to_do() {
    let refused = |edit: fn(&mut Config)| {
        let mut config = Config::new("https://api.example:6443".parse().unwrap());
        edit(&mut config);
        client(&config, DEADLINE, ApiClock::default()).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(|_| ()).contains("certificate-authority-data"));
    assert!(refused(|config| config.proxy_url = Some("http://proxy".parse().unwrap())).contains("proxy-url"));
    let half = refused(|config| {
        config.accept_invalid_certs = true;
        config.auth_info.client_certificate_data = Some("QQ==".into());
    });
    assert!(half.contains("client-key"), "{half}");
    let odd = refused(|config| {
        config.accept_invalid_certs = true;
        config.auth_info.token = Some("a\nb".to_owned().into());
    });
    assert!(odd.contains("token holds characters"), "{odd}");
}
