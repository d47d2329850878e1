{
  "uid": "reliable",
  "description": "All data, in order: by SCTP, QUIC or TCP.",
  "priority": 50,
  "match": {
    "transport": {
      "value": "reliable",
      "precedence": 1
    }
  },
  "properties": [
    [
      {
        "transport": {
          "value": "SCTP",
          "precedence": 1,
          "score": 3
        }
      },
      {
        "transport": {
          "value": "QUIC",
          "precedence": 1,
          "score": 2
        }
      },
      {
        "transport": {
          "value": "TCP",
          "precedence": 1,
          "score": 1
        }
      }
    ]
  ],
  "replace_matched": true
}
