// The whole life of a process that is measured: a bundle, one event, one answer, a byte that says so.
const { readFileSync } = require("node:fs");

const [, , bundle, event] = process.argv;
const { handler } = require(bundle);

handler(JSON.parse(readFileSync(event, "utf8")), {
  functionName: "bench",
  functionVersion: "1",
  getRemainingTimeInMillis: () => 10_000,
}).then(({ statusCode }) => process.stdout.write(statusCode === 200 ? "." : `${statusCode}!`));
