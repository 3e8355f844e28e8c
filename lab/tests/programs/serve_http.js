// A small HTTP server of Node; it says so when it serves.
const http = require("node:http");
const answer = () => Buffer.from(JSON.stringify(Array.from({length: 200}, (_, i) => "x".repeat((i * 31) % 400))));
http.createServer((_, response) => response.end(answer())).listen(Number(process.argv[2]), "127.0.0.1", () => console.log("ready to serve"));
