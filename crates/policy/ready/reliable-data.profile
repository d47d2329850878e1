{
  "uid": "reliable-data",
  "description": "All data, in order, whatever other profiles prefer.",
  "priority": 10,
  "match": {
    "profile": {
      "value": "reliable-data",
      "precedence": 1
    }
  },
  "properties": {
    "transport": {
      "value": "reliable",
      "precedence": 2
    }
  }
}
