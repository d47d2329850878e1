{
  "uid": "confidential",
  "description": "Only what encrypts.",
  "priority": 10,
  "match": {
    "profile": {
      "value": "confidential",
      "precedence": 1
    }
  },
  "properties": [
    {
      "security": {
        "value": true,
        "precedence": 2
      }
    },
    [
      {
        "transport": {
          "value": "QUIC",
          "precedence": 1,
          "score": 2
        }
      },
      {
        "transport": {
          "value": "TLS",
          "precedence": 1,
          "score": 1
        }
      }
    ]
  ]
}
