{
  "uid": "background",
  "description": "Data that must hinder nobody. DSCP LE (RFC 8622).",
  "priority": 10,
  "match": {
    "profile": {
      "value": "background",
      "precedence": 1
    }
  },
  "properties": {
    "capacity_profile": {
      "value": "scavenger",
      "precedence": 1
    },
    "dscp": {
      "value": 1,
      "precedence": 1
    }
  }
}
