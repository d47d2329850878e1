{
  "uid": "unreliable",
  "description": "Datagrams that may be lost.",
  "priority": 50,
  "match": {
    "transport": {
      "value": "unreliable",
      "precedence": 1
    }
  },
  "properties": [
    [
      {
        "transport": {
          "value": "QUIC-DATAGRAM",
          "precedence": 1,
          "score": 3
        }
      },
      {
        "transport": {
          "value": "UDP-LITE",
          "precedence": 1,
          "score": 1
        }
      },
      {
        "transport": {
          "value": "UDP",
          "precedence": 1,
          "score": 2
        }
      }
    ]
  ],
  "replace_matched": true
}
