{
  "uid": "default",
  "description": "What holds when a program says nothing: all data, in order.",
  "priority": 0,
  "match": {},
  "properties": {
    "transport": {
      "value": "reliable",
      "precedence": 0
    }
  }
}
