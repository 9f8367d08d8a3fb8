import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, it } from "node:test";
import { Failure } from "../failure.ts";
import { type CueEngine, createEngine, evaluateCue, warmUpCueEngine } from "./engine.ts";

const createSmallEngine = () => createEngine(128); // MiB of memory
const addToNow = (milliseconds: number) => Date.now() + milliseconds;
const getLateDeadline = () => addToNow(60_000);
/** Returns the value of a script as JSON, or the error's message. */
const getOutcome = (engine: CueEngine, source: string, deadline = getLateDeadline()) =>
  engine.evaluate(source, deadline).catch((error: Error) => error.message);

const nest = (depth: number, open = "[", close = "]") => `a: ${open.repeat(depth)}${close.repeat(depth)}`;
/** A script in which each of 40 texts is twice as long as the text before it. */
const doubling = Array.from({ length: 40 }, (_, index) =>
  index === 0 ? 'a0: "xx"' : `a${index}: "\\(a${index - 1})\\(a${index - 1})"`,
).join("\n");
const endless = `import "list"
a: len([for i in list.Range(0, 10000, 1) for j in list.Range(0, 10000, 1) for k in list.Range(0, 10000, 1) {i+j+k}])`;
const timeoutMessage = "the script did not end in time";
const memoryMessage = "the script needs more than 128 MiB of memory";

describe("a CUE engine", () => {
  it("a CUE engine can be started before the first evaluation", async () => {
    warmUpCueEngine();
    assert.equal(await evaluateCue("a: 1 + 1"), '{"a":2}');
  });

  it("a CUE engine rejects with CUE's message if a script has no value", async () => {
    await assert.rejects(evaluateCue("a: b"), (error) => error instanceof Error && !(error instanceof Failure));
    await assert.rejects(evaluateCue("a: b"), { message: 'a: reference "b" not found' });
    await assert.rejects(evaluateCue("a: {"), { message: "expected '}', found 'EOF'" });
  });

  const endedThreads: [what: string, source: string, milliseconds: number, message: string][] = [
    ["was ended at its deadline", endless, 300, timeoutMessage],
    ["crashed", nest(100_000), 60_000, "the script nests too deeply"],
  ];
  for (const [what, source, milliseconds, message] of endedThreads)
    it(`starts a new thread immediately if a thread ${what}`, async () => {
      const smallEngine = createSmallEngine();
      smallEngine.warmUp();
      await once(process, "worker");
      if (source === endless) await smallEngine.evaluate("a: 0", getLateDeadline());
      assert.equal(await getOutcome(smallEngine, source, addToNow(milliseconds)), message);
      // The thread starts only after its files were found, which happens after this line.
      await once(process, "worker", { signal: AbortSignal.timeout(60_000) });
    });

  const sharedEngine = createSmallEngine();
  const hostileScripts: [what: string, source: string, message: string | RegExp][] = [
    ["nests lists too deeply", nest(100_000), "the script nests too deeply"],
    ["nests brackets too deeply", nest(1_000_000, "(", ")"), "the script nests too deeply"],
    [
      "repeats a text a thousand million times",
      'import "strings"\na: len(strings.Repeat("x", 1000000000))',
      memoryMessage,
    ],
    ["doubles a text again and again", doubling, memoryMessage],
    [
      "has a value that is too long",
      'import "strings"\na: strings.Repeat("x", 5000000)',
      /^its value has more than 4194304/,
    ],
    ["is too long itself", `a: "${"é".repeat(2 ** 21)}"`, /^the script and its object have more than 4194304 bytes$/],
    ["defines a structure by itself", "#L: {n: #L}\na: #L", /structural cycle/],
    [
      "has a regular expression that backtracks in other engines",
      `import "regexp"\na: regexp.Match("(x+x+)+y", "${"x".repeat(99)}")`,
      '{"a":false}',
    ],
    [
      "tries to start a program",
      'import "tool/exec"\na: exec.Run & {cmd: "ls", stdout: string}',
      /cannot convert incomplete/,
    ],
  ];
  for (const [what, source, message] of hostileScripts)
    it(`evaluates the next script after a script that ${what}`, async () => {
      const outcome = await getOutcome(sharedEngine, source);
      if (typeof message === "string") assert.equal(outcome, message);
      else assert.match(outcome, message);
      assert.equal(await getOutcome(sharedEngine, "a: 1"), '{"a":1}');
    });

  it("a CUE engine stops an endless script at its deadline, and evaluates the scripts that waited for it", async () => {
    const newEngine = createEngine();
    await newEngine.evaluate("a: 0");
    const outcomes = [
      getOutcome(newEngine, endless, addToNow(700)),
      ...Array.from({ length: 19 }, (_, index) => getOutcome(newEngine, `a: ${index}`)),
      getOutcome(newEngine, "a: 1", addToNow(-1)),
    ];
    const expected = [timeoutMessage, ...Array.from({ length: 19 }, (_, index) => `{"a":${index}}`), timeoutMessage];
    assert.deepEqual(await Promise.all(outcomes), expected);
    await assert.rejects(
      newEngine.evaluate(endless, addToNow(300)),
      (error) => error instanceof Failure && error.code === 504,
    );
    assert.equal(await getOutcome(newEngine, "a: 1"), '{"a":1}');
  });

  it("a CUE engine evaluates the scripts that waited for a script that crashed CUE", async () => {
    const smallEngine = createSmallEngine();
    const outcomes = [nest(100_000), "a: 1", doubling, "a: 2"].map((source) => getOutcome(smallEngine, source));
    assert.deepEqual(await Promise.all(outcomes), ["the script nests too deeply", '{"a":1}', memoryMessage, '{"a":2}']);
  });

  it("a CUE engine evaluates a script although earlier scripts have filled the memory", async () => {
    const smallEngine = createSmallEngine();
    const sizes = [70_000_000, 80_000_000, 75_000_000]; // bytes, together more than the limit
    const outcomes = sizes.map((size) =>
      getOutcome(smallEngine, `import "strings"\na: len(strings.Repeat("x", ${size}))`),
    );
    const expected = sizes.map((size) => `{"a":${size}}`);
    assert.deepEqual(await Promise.all(outcomes), expected);
  });

  it("a CUE engine evaluates an object of 1.4 MB, as large as an API server accepts", async () => {
    const items = Array.from({ length: 9000 }, (_, index) => ({
      name: `item-${index}`,
      value: { text: "of some length that values of objects have, more or less".repeat(2), number: index },
    }));
    const json = JSON.stringify({ items });
    assert.ok(json.length > 1.4e6);
    assert.equal(await getOutcome(createEngine(), `_object: ${json}\n"out": len(_object.items)`), '{"out":9000}');
  });

  it("a CUE engine keeps a process alive only during an evaluation", async () => {
    const module = new URL("engine.ts", import.meta.url).href;
    const program = `import { evaluateCue } from ${JSON.stringify(module)}; evaluateCue("a: 1").then(console.log);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let message = "";
    child.stdout.on("data", (data) => {
      message += data;
    });
    const [code] = await once(child, "exit", { signal: AbortSignal.timeout(60_000) });
    assert.deepEqual([code, message], [0, '{"a":1}\n']);
  });
});
