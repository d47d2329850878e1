{
  "uid": "bulk",
  "description": "Much data, soon. DSCP AF11, high-throughput data (RFC 4594 section 4.8).",
  "priority": 10,
  "match": {
    "profile": {
      "value": "bulk",
      "precedence": 1
    }
  },
  "properties": {
    "capacity_profile": {
      "value": "capacity-seeking",
      "precedence": 1
    },
    "dscp": {
      "value": 10,
      "precedence": 1
    },
    "transport": {
      "value": "reliable",
      "precedence": 1
    }
  }
}
