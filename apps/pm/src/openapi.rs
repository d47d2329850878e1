//! The description of the REST interface in the words of OpenAPI 3.1.

use serde_json::{Value, json};

/// What there is at a port, with methods, answers and what needs the token.
pub(crate) fn description() -> Value {
    let secured = json!([{"token": []}]);
    let uid = json!({"name": "uid", "in": "path", "required": true, "schema": {"type": "string", "maxLength": 256}});
    let text = |description: &str| json!({"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}});
    let object = |description: &str, schema: &str| {
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        json!({"description": description, "content": {"application/json": {"schema": schema}}})
    };
    let list = |description: &str, items: Value| {
        let schema = json!({"type": "array", "items": items});
        json!({"description": description, "content": {"application/json": {"schema": schema}}})
    };
    let refused = object("Refused, and why.", "Error");
    let read = |summary: &str, ok: Value| json!({"summary": summary, "responses": {"200": ok, "408": refused, "413": refused, "421": refused}});
    let write = |summary: &str, ok: &str, missing: bool| {
        let mut it = json!({"summary": summary, "security": secured, "responses": {
            "200": text(ok), "401": refused, "408": refused, "413": refused, "421": refused}});
        if missing {
            it["responses"]["404"] = text("There is none of this uid.");
        }
        it
    };
    let one = |what: &str, schema: &str| {
        let mut get = read(&format!("One {what}"), object("As it counts.", schema));
        get["responses"]["404"] = text("There is none of this uid.");
        let mut put = write(&format!("Put a {what} in; one of the same uid goes"), "OK", false);
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        put["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": schema}}});
        put["responses"]["400"] = refused.clone();
        put["responses"]["415"] = refused.clone();
        let mut delete = write(&format!("Take a {what} out"), "It is gone.", true);
        for method in [&mut put, &mut delete] {
            // It is the system's, or a file's; or what is to be kept cannot be written.
            method["responses"]["403"] = refused.clone();
            method["responses"]["409"] = refused.clone();
            method["responses"]["500"] = refused.clone();
        }
        json!({"parameters": [uid], "get": get, "put": put, "delete": delete})
    };
    let uids = json!({"type": "string"});
    let reload = write("Read the directories now", "They were read.", false);
    json!({
        "openapi": "3.1.0",
        "info": {"title": "neater pm", "version": env!("CARGO_PKG_VERSION"),
            "description": "The policy manager of this host. docs/policy.md explains what policies and nodes mean."},
        "servers": [{"url": "/"}],
        "paths": {
            "/pib": {"get": read("The uids of the policies, in the order in which they are tried", list("uids", uids.clone()))},
            "/profiles": {"get": read("The uids of the profiles, likewise", list("uids", uids.clone()))},
            "/pib/{uid}": one("policy or profile", "Policy"),
            "/cib": {"get": read("The uids of the CIB's nodes", list("uids", uids))},
            "/cib/{uid}": one("node", "Node"),
            "/cib/rows": {"get": read("The rows that hold now", list("rows", json!({"$ref": "#/components/schemas/Properties"})))},
            "/reload": {"get": reload, "post": reload},
            "/metrics": {"get": read("What is counted, for Prometheus", text("Prometheus' text format"))},
            "/openapi.json": {"get": read("This description", json!({"description": "OpenAPI", "content": {"application/json": {}}}))},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer",
                "description": "The text in the file rest_token beside the sockets."}},
            "schemas": {
                "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
                "Property": {"type": "object", "properties": {
                    "value": {"description": "a text, number or Boolean; a list for a set; {start, end} for a range; null for any"},
                    "precedence": {"type": "integer", "minimum": 0, "maximum": 2, "default": 1},
                    "score": {"type": "number", "default": 0},
                    "evaluated": {"type": "boolean", "default": false}}},
                "Properties": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Property"}},
                "Groups": {"description": "an object of properties, or a list of groups: objects, or lists of alternative objects",
                    "oneOf": [{"$ref": "#/components/schemas/Properties"}, {"type": "array"}]},
                "Policy": {"type": "object", "properties": {
                    "uid": {"type": "string", "maxLength": 256}, "priority": {"type": "integer", "default": 0},
                    "replace_matched": {"type": "boolean", "default": false},
                    "policy_type": {"enum": ["profile", "policy"], "default": "policy"},
                    "match": {"$ref": "#/components/schemas/Properties"},
                    "properties": {"$ref": "#/components/schemas/Groups"}, "description": {"type": "string"}}},
                "Node": {"type": "object", "minProperties": 1, "properties": {
                    "uid": {"type": "string", "maxLength": 256}, "root": {"type": "boolean", "default": false},
                    "link": {"type": "boolean", "default": false},
                    "expire": {"type": "number", "description": "seconds since 1970, or -1 for never"},
                    "match": {"type": "array", "items": {"$ref": "#/components/schemas/Properties"}},
                    "properties": {"$ref": "#/components/schemas/Groups"}, "description": {"type": "string"}}},
            },
        },
    })
}
