//! REST as its clients meet it, without a socket.

use super::*;
use axum::http;
use tower_service::Service;

const PORT: u16 = 45888;
const TOKEN: &str = "0123456789abcdef";

/// A manager without files, whose owner root is.
fn shared() -> Arc<Shared> {
    Arc::new(Shared { port: PORT, token: TOKEN.into(), ..crate::bare(false) })
}

/// An answer: its status, fields, and body.
type Answer = (u16, HeaderMap, String);

async fn answer(shared: &Arc<Shared>, request: http::request::Builder, body: &str) -> Answer {
    let request = request.body(Body::from(body.to_owned())).expect("a request");
    let Ok(response) = router(shared).call(request).await;
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a body");
    (parts.status.as_u16(), parts.headers, String::from_utf8(body.into()).expect("text"))
}

fn request(method: &str, path: &str) -> http::request::Builder {
    http::Request::builder().method(method).uri(path).header(HOST, "127.0.0.1:45888")
}

async fn ask(shared: &Arc<Shared>, method: &str, path: &str, token: Option<&str>, body: &str) -> Answer {
    let mut request = request(method, path).header(CONTENT_TYPE, "application/json; charset=utf-8");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    answer(shared, request, body).await
}

fn interface(uid: &str) -> String {
    json!({"uid": uid, "root": true, "expire": -1, "properties": {"interface": {"value": uid, "score": 1}}}).to_string()
}

#[tokio::test]
async fn rest_reads_for_all_and_writes_for_who_has_the_token() {
    let s = shared();
    let rest = async |method: &str, path: &str, token: Option<&str>, body: &str| {
        let (status, _, body) = ask(&s, method, path, token, body).await;
        (status, body)
    };
    let policy = r#"{"match": {"app": {"value": "x"}}, "properties": {"dscp": {"value": 10}}}"#;
    for token in [None, Some(""), Some("0123456789abcdee"), Some("0123456789abcdef0")] {
        assert_eq!(rest("PUT", "/pib/site", token, policy).await.0, 401);
        assert_eq!(rest("DELETE", "/cib/x", token, "").await.0, 401);
        assert_eq!(rest("GET", "/reload", token, "").await.0, 401);
    }
    assert_eq!(rest("PUT", "/pib/Site", Some(TOKEN), policy).await, (200, "OK".into()));
    assert_eq!(rest("GET", "/pib", None, "").await.1, "[\"site\"]\n");
    assert_eq!(rest("GET", "/profiles", None, "").await.1, "[]\n");
    let held: Value = serde_json::from_str(&rest("GET", "/pib/SITE", None, "").await.1).expect("JSON");
    assert_eq!(held["properties"][0][0]["dscp"]["value"], 10);
    assert_eq!(rest("DELETE", "/pib/site", Some(TOKEN), "").await, (200, "Policy removed".into()));
    let gone = (404, "Policy not found (uid 'site').".into());
    assert_eq!(rest("DELETE", "/pib/site", Some(TOKEN), "").await, gone);

    assert_eq!(rest("PUT", "/cib/eth0", Some(TOKEN), &interface("other")).await.0, 200);
    assert_eq!(rest("GET", "/cib", None, "").await.1, "[\"eth0\"]\n");
    let rows: Value = serde_json::from_str(&rest("GET", "/cib/rows", None, "").await.1).expect("JSON");
    assert_eq!(rows[0]["interface"]["value"], "other");
    assert_eq!(rest("DELETE", "/cib/eth0", Some(TOKEN), "").await.1, "CIB node removed");
    assert_eq!(rest("GET", "/cib/eth0", None, "").await.0, 404);

    let diagnostic = "{\"match\": {},\n \"properties\": {\"dscp\": {\"value\": 300}}}";
    let (status, odd) = rest("PUT", "/pib/odd", Some(TOKEN), diagnostic).await;
    assert!(status == 200 && odd.starts_with("OK\n2:17: warning: dscp = 300 has no effect"), "{odd}");
    let (status, bad) = rest("PUT", "/pib/bad", Some(TOKEN), "{\n \"priority\": []}").await;
    assert!(status == 400 && bad.contains("line 2 column 2: priority is a number"), "{bad}");
    let (_, fields, why) = ask(&s, "PATCH", "/pib/x", Some(TOKEN), "").await;
    assert_eq!(field(&fields, ALLOW), Some("GET, PUT, DELETE"), "{why}");
    assert_eq!(rest("OPTIONS", "/pib/x", None, "").await.0, 405);
    assert_eq!(rest("GET", "/", None, "").await.0, 404);
    assert_eq!(rest("GET", "/reload", Some(TOKEN), "").await, (200, "PM repositories reloaded.".into()));
    assert_eq!(rest("PUT", "/pib/x", Some(TOKEN), &" ".repeat(MAX_JSON + 1)).await.0, 413);
}

#[tokio::test]
async fn only_this_host_may_ask_and_no_page_of_another_origin_reads() {
    let s = shared();
    let bare = || http::Request::builder().uri("/pib");
    assert_eq!(answer(&s, bare().header(HOST, "evil.example:45888"), "").await.0, 421);
    assert_eq!(answer(&s, bare(), "").await.0, 421);
    assert_eq!(answer(&s, request("GET", "/pib").header(HOST, "127.0.0.1:45888"), "").await.0, 421);
    let form = request("PUT", "/pib/x").header(AUTHORIZATION, format!("Bearer {TOKEN}"));
    assert_eq!(answer(&s, form.header(CONTENT_TYPE, "text/plain"), "{}").await.0, 415);
    for path in ["/pib", "/nothing"] {
        let (_, fields, _) = ask(&s, "GET", path, None, "").await;
        assert_eq!(fields["x-content-type-options"], "nosniff");
        assert_eq!(fields["cross-origin-resource-policy"], "same-origin");
        assert_eq!(fields[CACHE_CONTROL], "no-store");
        assert!(!fields.contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn a_node_of_a_file_is_changed_in_the_file() {
    use neater_policy::manager::SourceFile;
    let s = shared();
    s.daemon().load(&[], &[SourceFile { name: "x.cib", text: &interface("x") }], now());
    let (status, _, why) = ask(&s, "PUT", "/cib/x", Some(TOKEN), &interface("other")).await;
    assert!(status == 409 && why.contains("change the file"), "{why}");
    assert_eq!(ask(&s, "DELETE", "/cib/x", Some(TOKEN), "").await.0, 409);
}

#[tokio::test]
async fn the_description_names_every_path_and_method_and_no_other() {
    let s = shared();
    let (_, _, text) = ask(&s, "GET", "/openapi.json", None, "").await;
    let description: Value = serde_json::from_str(&text).expect("JSON");
    for (path, item) in description["paths"].as_object().expect("paths") {
        let path = path.replace("{uid}", "x");
        for method in ["GET", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "HEAD"] {
            let described = item[method.to_lowercase()].is_object();
            let (status, _, _) = ask(&s, method, &path, None, "").await;
            assert_eq!(status != 405, described, "{method} {path}: {status}");
            assert_eq!(status == 401, item[method.to_lowercase()]["security"].is_array(), "{method} {path}");
        }
    }
    assert_eq!(description["servers"][0]["url"], "/");
    for (method, statuses) in
        [("get", vec!["404", "408", "413", "421"]), ("put", vec!["400", "403", "409", "415", "500"])]
    {
        for status in statuses {
            assert!(description["paths"]["/cib/{uid}"][method]["responses"][status].is_object(), "{method} {status}");
        }
    }
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().expect("a name");
        assert!(description["components"]["schemas"][name].is_object(), "{name}");
    }
}

#[tokio::test]
async fn what_happened_is_counted() {
    use neater_policy::manager::Requests;
    let s = shared();
    let asked = Requests::from_text(r#"[{"transport": {"value": "TCP"}}]"#).expect("a request");
    for _ in 0..3 {
        s.daemon().decide(1000, &asked, now()).expect("a decision");
    }
    s.daemon().counters.worked(Duration::from_micros(15));
    ask(&s, "PUT", "/cib/eth0", Some(TOKEN), &interface("eth0")).await;
    ask(&s, "PUT", "/cib/eth0", None, "").await;
    let (_, _, text) = ask(&s, "GET", "/metrics", None, "").await;
    for line in [
        "neater_pm_decisions_total 3",
        "neater_pm_decisions_cached_total 1",
        "neater_pm_nodes 1",
        "neater_pm_requests_total{socket=\"rest\"} 2",
        "neater_pm_refused_total{socket=\"rest\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

#[test]
fn only_literal_addresses_of_this_host_count() {
    for (host, here) in [
        ("127.0.0.1:45888", true),
        ("127.1.2.3:45888", true),
        ("[::1]:45888", true),
        ("127.0.0.1", false),
        ("127.0.0.1:80", false),
        ("localhost:45888", false),
        ("evil.example:45888", false),
        ("10.0.0.1:45888", false),
        ("::1:45888", false),
        ("[127.0.0.1]:45888", false),
        ("127.0.0.1.:45888", false),
        ("127.0.0.1:45888:45888", false),
        ("", false),
    ] {
        assert_eq!(is_here(host, 45888), here, "{host}");
    }
    assert!(is_here("127.0.0.1", 80));
}

#[tokio::test]
async fn escapes_are_undone_and_what_is_none_leads_nowhere() {
    let s = shared();
    assert_eq!(ask(&s, "PUT", "/pib/a%2Fb", Some(TOKEN), "{}").await.0, 200);
    assert_eq!(ask(&s, "GET", "/pib", None, "").await.2, "[\"a/b\"]\n");
    assert_eq!(ask(&s, "GET", "/pib/a%2Fb", None, "").await.0, 200);
    assert_eq!(ask(&s, "GET", "/cib/rows?x=1", None, "").await.0, 200);
    for wrong in ["/pib/%", "/pib/%2", "/pib/%+1", "/pib/%ff", "/pib/", "/pib/a/b", "/"] {
        assert_eq!(ask(&s, "GET", wrong, None, "").await.0, 404, "{wrong}");
    }
}
