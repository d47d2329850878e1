{
  "uid": "multihomed",
  "description": "Several paths at once, or one after the other.",
  "priority": 10,
  "match": {
    "profile": {
      "value": "multihomed",
      "precedence": 1
    }
  },
  "properties": [
    {
      "multihoming": {
        "value": true,
        "precedence": 1
      }
    },
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
          "value": "MPTCP",
          "precedence": 1,
          "score": 2
        }
      },
      {
        "transport": {
          "value": "QUIC",
          "precedence": 1,
          "score": 1
        }
      }
    ]
  ]
}
