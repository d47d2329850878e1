{
  "uid": "real-time",
  "description": "A stream of media whose data is worth nothing when it is late. DSCP AF41, multimedia conferencing (RFC 4594 section 4.3).",
  "priority": 10,
  "match": {
    "profile": {
      "value": "real-time",
      "precedence": 1
    }
  },
  "properties": {
    "capacity_profile": {
      "value": "constant-rate",
      "precedence": 1
    },
    "dscp": {
      "value": 34,
      "precedence": 1
    },
    "transport": {
      "value": "unreliable",
      "precedence": 1
    }
  }
}
