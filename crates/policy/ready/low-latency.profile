{
  "uid": "low-latency",
  "description": "Small messages that people wait for. DSCP AF21, low-latency data (RFC 4594 section 4.7).",
  "priority": 10,
  "match": {
    "profile": {
      "value": "low-latency",
      "precedence": 1
    }
  },
  "properties": {
    "capacity_profile": {
      "value": "low-latency",
      "precedence": 1
    },
    "dscp": {
      "value": 18,
      "precedence": 1
    }
  }
}
