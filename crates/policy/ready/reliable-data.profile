{
  "uid": "reliable-data",
  "description": "All data, in order, whatever other profiles prefer.",
  "priority": 10,
  "match": {
    "profile": {
      "value": [
        "reliable-data",
        "reliable"
      ],
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
