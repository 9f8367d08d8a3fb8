import assert from "node:assert/strict";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { Session } from "node:inspector/promises";
import { createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { createEndpoint } from "#lib/core/endpoint.ts";
import { type Rule, rule, type Verdict } from "#lib/rule.ts";
import { describeCaseDifferences } from "../../infra/catalogue/case-differences.ts";
import { buildReview, evaluateCase, parseCases } from "../../infra/catalogue/cases.ts";
import { readCatalogue } from "../../infra/catalogue/registry.ts";
import { createConsole } from "../../infra/console/console.ts";
import type { ReviewDetails, ReviewRow, RuleSummary } from "../../infra/console/messages.ts";
import { bundlePage } from "../../infra/console/page-files.ts";
import { createReviewFeed } from "../../infra/console/reviews.ts";
import { createHttpRequestBuilder } from "../bench/inputs/reviews.ts";
import { type ConsoleGateway, serveWithConsole } from "../console.ts";
import { createTestFolder } from "../folders.ts";
import { listen } from "../listen.ts";
import { installPackage } from "../package.ts";
import { createTestSigner } from "../parity/test-key.ts";
import { buildPodRequest, buildPodReview } from "../requests.ts";

const exceptions = [{ namespaces: ["legacy"], until: "2999-12-31", owner: "team-billing", reason: "OPS-231" }];
const config = {
  rules: {
    "always-pull-images": {},
    "default-toleration-seconds": {},
    "allowed-registries": { settings: { registries: ["ghcr.io"] }, exempt: { users: ["root"], exceptions } },
    "security-context-deny": { mode: "warn" },
    "default-requests-and-limits": { mode: "audit", settings: { requests: { cpu: "100m" } } },
  },
  groups: { defaults: ["default-toleration-seconds", "default-requests-and-limits"] },
};
const folder = await createTestFolder();
let gateway: ConsoleGateway;
before(async () => {
  gateway = await serveWithConsole(folder, config);
});
after(() => gateway.stop());

interface Reply {
  code: number;
  headers: NodeJS.Dict<string | string[]>;
  body: string;
}

/** Sends a request to the console. Unlike fetch, it can set any Host header. */
const sendRequest = (path: string, { method = "GET", headers = {}, body = "" } = {}) =>
  new Promise<Reply>((resolve, reject) => {
    const sent = httpRequest(new URL(path, gateway.console), { method, headers, agent: false }, async (response) => {
      const text = Buffer.concat(await Array.fromAsync(response)).toString();
      resolve({ code: response.statusCode ?? 0, headers: response.headers, body: text });
    });
    sent.on("error", reject);
    sent.end(body);
  });

const requestJson = async (path: string, options = {}) => {
  const { code, body } = await sendRequest(path, options);
  assert.equal(code, 200, body);
  return JSON.parse(body);
};

/** Opens the stream of reviews, as a page does: of those after `lastEventId`, or of all if there is no such review. */
const openStream = async (lastEventId?: string, address = gateway.console) => {
  const stop = new AbortController();
  const headers: Record<string, string> = lastEventId === undefined ? {} : { "last-event-id": lastEventId };
  const response = await fetch(new URL("reviews", address), { signal: stop.signal, headers });
  const rows: ReviewRow[] = [];
  const read = async () => {
    let text = "";
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk).toString();
      const end = text.lastIndexOf("\n");
      if (end < 0) continue;
      for (const line of text.slice(0, end).split("\n"))
        if (line.startsWith("data: ")) rows.push(...JSON.parse(line.slice("data: ".length)));
      text = text.slice(end + 1);
    }
  };
  const readToEnd = read().catch(() => {});
  return {
    /** Waits until so many rows have arrived. */
    waitFor: async (count: number) => {
      for (let turn = 0; rows.length < count && turn < 2400; turn++) await wait(25);
      return rows;
    },
    /** Waits for the row of an object. */
    find: async (name: string): Promise<ReviewRow> => {
      for (let turn = 0; turn < 2400; turn++, await wait(25)) {
        const row = rows.find(({ object }) => object === name);
        if (row !== undefined) return row;
      }
      throw new Error(`there is no row of ${name}`);
    },
    close: () => {
      stop.abort();
      return readToEnd;
    },
  };
};

const buildPod = (name: string, image = "ghcr.io/app:1") => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: {
    name,
    namespace: "shop",
    annotations: { note: "the password is swordfish" },
    managedFields: [{ manager: "kubectl", operation: "Apply", fieldsV1: { "f:spec": {} } }],
  },
  spec: { containers: [{ name: "a", image, env: [{ name: "KEY", value: "swordfish" }] }] },
});
const buildRequest = (name: string, image?: string) =>
  buildPodRequest({ namespace: "shop", object: buildPod(name, image) });

describe("the console's listener", () => {
  it("the console sends a page whose policy forbids other sources, and forbids to make HTML of texts", async () => {
    const { code, headers, body } = await sendRequest("./");
    assert.equal(code, 200);
    assert.match(body, /^<!doctype html>/);
    const policy = String(headers["content-security-policy"]);
    for (const part of [
      "default-src 'none'",
      "script-src 'self'",
      "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
      "trusted-types 'none'",
    ])
      assert.ok(policy.split(/; ?/).includes(part), `${part} in ${policy}`);
    assert.doesNotMatch(policy, /unsafe|http/);
    assert.equal(headers["referrer-policy"], "no-referrer");
    assert.equal(headers["cross-origin-resource-policy"], "same-origin");
  });

  const getPort = () => new URL(gateway.console).port;
  const refused: [name: string, path: string, options: () => object, code: number, sentence: RegExp][] = [
    ["no token", "/", () => ({}), 403, /no valid token/],
    ["a wrong token", `/${"A".repeat(43)}/rules`, () => ({}), 403, /no valid token/],
    ["a part of the token", "../x/rules", () => ({}), 403, /no valid token/],
    [
      "another host's name",
      "rules",
      () => ({ headers: { host: `evil.example:${getPort()}` } }),
      403,
      /^The host must be/,
    ],
    ["a host without the port", "rules", () => ({ headers: { host: "127.0.0.1" } }), 403, /^The host must be/],
    ["another origin", "rules", () => ({ headers: { origin: "https://evil.example" } }), 403, /origins/],
    ["another port's origin", "rules", () => ({ headers: { origin: "http://127.0.0.1:1" } }), 403, /origins/],
    ["the origin of a sandbox", "check", () => ({ method: "POST", headers: { origin: "null" } }), 403, /origins/],
    ["a method that changes something", "rules", () => ({ method: "DELETE" }), 405, /takes GET/],
    ["a check by GET", "check", () => ({}), 405, /takes POST/],
    ["an unknown path", "constructor", () => ({}), 404, /nothing/],
    ["a path below a known one", "rules/x", () => ({}), 404, /nothing/],
    ["an unknown rule", "rule?name=../../etc", () => ({}), 422, /no rule/],
    ["an unknown review", "review?id=__proto__", () => ({}), 422, /no longer kept/],
  ];
  for (const [name, path, options, code, sentence] of refused)
    it(`the console refuses ${name}`, async () => {
      const reply = await sendRequest(path, options());
      assert.deepEqual([reply.code, sentence.test(reply.body)], [code, true], reply.body);
      assert.match(String(reply.headers["content-security-policy"]), /default-src 'none'/);
    });

  it("the console answers requests of its own origin, also under the name localhost", async () => {
    const host = `localhost:${getPort()}`;
    assert.equal((await sendRequest("rules", { headers: { host, origin: `http://${host}` } })).code, 200);
  });

  it("the console listens on loopback only", async () => {
    const outer = Object.values(networkInterfaces())
      .flat()
      .find((entry) => entry?.family === "IPv4" && !entry.internal)?.address;
    if (outer === undefined) return;
    await assert.rejects(fetch(`http://${outer}:${getPort()}/`), /fetch failed/);
  });

  it("the console's token is stored for its user only, so that an open page can connect after a restart", async () => {
    const file = join(folder, ".postern/console.token");
    assert.ok(gateway.console.endsWith(`/${await readFile(file, "utf8")}/`));
    assert.equal((await stat(file)).mode & 0o777, 0o600);
  });

  it("the console is not opened with --no-console", async () => {
    const otherFolder = await createTestFolder();
    const withoutConsole = await serveWithConsole(otherFolder, config, ["--port", "0", "--no-console"]);
    assert.doesNotMatch(withoutConsole.console, /console/i);
    assert.equal((await withoutConsole.send("allowed-registries/validate", buildRequest("a"))).allowed, true);
    await assert.rejects(stat(join(otherFolder, ".postern/console.token")), /ENOENT/);
    await withoutConsole.stop();
  });

  it("the gateway reports that the console's port is in use, and serves the rules without a console", async () => {
    const portHolder = createServer();
    const port = await listen(portHolder);
    const otherFolder = await createTestFolder();
    const withoutConsole = await serveWithConsole(otherFolder, config, ["--port", "0", "--console-port", String(port)]);
    assert.match(
      withoutConsole.console,
      /^There is no console: port \d+ of 127\.0\.0\.1 is in use; --console-port takes another$/m,
    );
    assert.equal((await withoutConsole.send("allowed-registries/validate", buildRequest("a"))).allowed, true);
    await withoutConsole.stop();
    await new Promise((resolve) => portHolder.close(resolve));
  });
});

it("with a damaged token of the console, the gateway serves the rules, but no console", async () => {
  const otherFolder = await createTestFolder();
  await mkdir(join(otherFolder, ".postern"));
  await writeFile(join(otherFolder, ".postern/console.token"), "x");
  const withoutConsole = await serveWithConsole(otherFolder, config);
  assert.match(withoutConsole.console, /^There is no console: \S+console\.token holds no token; delete it/m);
  assert.equal((await withoutConsole.send("allowed-registries/validate", buildRequest("a"))).allowed, true);
  await withoutConsole.stop();
});

describe("reviews", () => {
  it("reviews reach an open page at once; a page that connects again gets the missed reviews", async (test) => {
    const stream = await openStream();
    const sent = performance.now();
    await gateway.send("allowed-registries/validate", buildRequest("first", "docker.io/nginx"));
    const [row] = await stream.waitFor(1);
    test.diagnostic(`shown after ${Math.round(performance.now() - sent)} ms`);
    assert.ok(row);
    const { id, at, milliseconds, ...facts } = row;
    assert.ok(at > 0 && milliseconds > 0);
    assert.deepEqual(facts, {
      cluster: "local",
      rule: "allowed-registries",
      phase: "validate",
      verdict: "denied",
      operation: "CREATE",
      object: "Pod shop/first",
      user: "jane",
      sentence: 'images must come from ghcr.io; container "a" has docker.io/library/nginx',
    });
    await stream.close();
    await gateway.send("allowed-registries/validate", buildRequest("second"));
    const secondStream = await openStream(id);
    assert.deepEqual(
      (await secondStream.waitFor(1)).map(({ object }) => object),
      ["Pod shop/second"],
    );
    await secondStream.close();
  });

  it("reviews of an object that an exception allows name the exception", async () => {
    const stream = await openStream("none");
    const request = buildPodRequest({ namespace: "legacy", object: buildPod("old", "docker.io/nginx") });
    await gateway.send("allowed-registries/validate", request);
    const { id, verdict, sentence } = await stream.find("Pod legacy/old");
    await stream.close();
    assert.deepEqual([verdict, sentence], ["allowed", "exempt until 2999-12-31 (team-billing): OPS-231"]);
    const { evaluations, sentences }: ReviewDetails = await requestJson(`review?id=${id}`);
    assert.deepEqual(evaluations, []);
    assert.match(sentences.join(), /an exception let it through/);
  });

  it("reviews are shown without free texts, with their conditions, and as cases that pass with the rule", async () => {
    const stream = await openStream("none");
    await gateway.send("always-pull-images/mutate", buildRequest("changed"));
    await gateway.send("allowed-registries/validate", buildRequest("denied", "docker.io/nginx"));
    await gateway.send("security-context-deny/validate", buildRequest("warned"));
    const names = ["changed", "denied", "warned"].map((name) => `Pod shop/${name}`);
    const rows = await Promise.all(names.map((name) => stream.find(name)));
    await stream.close();
    const catalogue = await readCatalogue();
    for (const { id, rule } of rows) {
      const details: ReviewDetails = await requestJson(`review?id=${id}`);
      assert.doesNotMatch(JSON.stringify(details), /swordfish|managedFields/);
      const [evaluation] = details.evaluations;
      const listed = catalogue.find(({ name }) => name === rule);
      assert.ok(evaluation && listed, JSON.stringify(details));
      const [entry, ...otherCases] = parseCases(evaluation.caseText, "cases.yaml", listed.phases);
      assert.ok(entry);
      assert.deepEqual(otherCases, []);
      assert.deepEqual(
        describeCaseDifferences(entry, await evaluateCase(listed, entry, buildReview(listed, entry))),
        [],
      );
    }
    const find = async (rule: string) => {
      const id = rows.find((row) => row.rule === rule)?.id;
      return ((await requestJson(`review?id=${id}`)) as ReviewDetails).evaluations[0];
    };
    const changed = await find("always-pull-images");
    assert.deepEqual(
      changed?.lines.filter(({ sign }) => sign !== " "),
      [{ sign: "+", text: "    imagePullPolicy: Always", rule: "always-pull-images" }],
    );
    assert.deepEqual(Object.keys(changed?.conditions ?? {}), ["may-do-without-a-pull", "brings-an-image"]);
    const denied = await find("allowed-registries");
    assert.match(denied?.refusal ?? "", /images must come from ghcr\.io/);
    assert.ok(Object.hasOwn(denied?.conditions ?? {}, "postern.dev/user-is-not-exempt"));
    assert.equal(denied?.mode, "enforce");
    const warned = await find("security-context-deny");
    assert.deepEqual([warned?.mode, warned?.refusal], ["warn", undefined]);
  });

  it("reviews by a group state the verdict of each of its rules, also of a rule in mode warn or audit", async () => {
    const stream = await openStream("none");
    await gateway.send("defaults/mutate", buildRequest("grouped"));
    const row = await stream.find("Pod shop/grouped");
    await stream.close();
    assert.deepEqual(
      [row.rule, row.verdict, row.members],
      [
        "defaults",
        "changed",
        { "default-toleration-seconds": "changed", "default-requests-and-limits": "would be changed" },
      ],
    );
    const details: ReviewDetails = await requestJson(`review?id=${row.id}`);
    assert.deepEqual(details.row, row);
    assert.deepEqual(
      details.evaluations.map(({ rule, mode, lines }) => [rule, mode, lines.some(({ sign }) => sign === "+")]),
      [
        ["default-toleration-seconds", "enforce", true],
        ["default-requests-and-limits", "audit", true],
      ],
    );
    const { setups } = await requestJson("rule?name=default-requests-and-limits");
    assert.match(setups[0].text, /webhookEntries:\n {2}mutate:[\s\S]*concerns-a-member/);
  });
});

describe("manifests that are tried", () => {
  const check = (question: object) => sendRequest("check", { method: "POST", body: JSON.stringify(question) });
  const defaultQuestion = { cluster: "local", user: "jane", operation: "" };

  it("manifests that are tried get check's verdict, the denial's line, and the webhooks that were called", async () => {
    const text = JSON.stringify(buildPod("tried", "docker.io/nginx"), null, 2);
    const { code, body } = await check({ ...defaultQuestion, text: `# one\n${text}` });
    assert.equal(code, 200, body);
    const [object, ...otherObjects] = JSON.parse(body).objects;
    assert.deepEqual(otherObjects, []);
    assert.equal(object.verdict, "denied");
    // Lines count from 1, and the sent text has one more line at its beginning.
    const line = text.split("\n").findIndex((content) => content.includes('"image"')) + 2;
    assert.deepEqual(
      object.denials.map((denial: { rule: string; line: number }) => [denial.rule, denial.line]),
      [["allowed-registries", line]],
    );
    const hooks = object.hooks.map(({ hook }: { hook: string }) => hook);
    assert.ok(hooks.includes("allowed-registries.postern.dev"), hooks.join());
  });

  const wrongQuestions: [name: string, question: unknown, sentence: RegExp][] = [
    ["no text", { ...defaultQuestion, text: " " }, /there is no manifest yet/],
    ["no question", "x", /must be texts/],
    [
      "an operation that postern check doesn't know",
      { ...defaultQuestion, text: "a", operation: "CONNECT" },
      /CREATE, UPDATE/,
    ],
    [
      "an option in place of a cluster",
      { ...defaultQuestion, text: "a", cluster: "x --live" },
      /no cluster "x --live"/,
    ],
    [
      "a user without a name",
      { ...defaultQuestion, text: "kind: Pod\napiVersion: v1", user: "" },
      /--as takes USER, not an empty text/,
    ],
    ["more than 1 MB", { ...defaultQuestion, text: "x".repeat(1_100_000) }, /more than 1048576 bytes/],
  ];
  for (const [name, question, sentence] of wrongQuestions)
    it(`manifests that are tried are refused in a sentence: ${name}`, async () => {
      const { code, body } = await check(question as object);
      assert.deepEqual([code, sentence.test(body)], [422, true], body);
    });
});

it("a check whose page was closed is stopped, so that the next check can start", async () => {
  const pod = "---\napiVersion: v1\nkind: Pod\nmetadata: { name: a }\n";
  const start = (text: string, signal = AbortSignal.timeout(60_000)) => {
    const body = JSON.stringify({ cluster: "local", user: "jane", operation: "", text });
    return fetch(new URL("check", gateway.console), { method: "POST", body, signal });
  };
  const closed = new AbortController();
  /** Starts a long check. If a short one still runs, it tries again. */
  const startFirst = async (): Promise<unknown> =>
    (await start(pod.repeat(18_000), closed.signal)).status === 422 ? startFirst() : undefined;
  const first = assert.rejects(startFirst(), /aborted/);
  /** Starts short checks until an answer matches `wanted`. */
  const startUntil = async (wanted: RegExp) => {
    for (let turn = 0; turn < 1200; turn++, await wait(50)) {
      const reply = await start(pod);
      if (wanted.test(`${reply.status} ${await reply.text()}`)) return;
    }
    assert.fail(`no check was answered with ${wanted}`);
  };
  await startUntil(/^422 Another check is running/);
  closed.abort();
  await first;
  await startUntil(/^200 /);
});

describe("rules", () => {
  it("rules on the console are listed with their modes", async () => {
    const { rules, clusters } = await requestJson("rules");
    assert.deepEqual(clusters, ["local"]);
    const modes = new Map(rules.map(({ name, modes }: RuleSummary) => [name, modes]));
    assert.deepEqual(modes.get("security-context-deny"), { local: "warn" });
    assert.deepEqual(modes.get("always-deny"), { local: "off" });
    const isOn = rules.map(({ modes }: RuleSummary) => modes.local !== "off");
    assert.deepEqual(isOn, isOn.toSorted().reverse(), "those that are on come first");
    assert.equal(isOn.filter(Boolean).length, Object.keys(config.rules).length);
  });

  it("rules on the console are shown with settings, entries, exemptions, cases, parity and README", async () => {
    const details = await requestJson("rule?name=allowed-registries");
    assert.match(details.setups[0].text, /registries:\n {2}- ghcr\.io[\s\S]*exempt:\n\s+users:\n\s+- root/);
    assert.match(details.setups[0].text, /until: "?2999-12-31"?\n\s+owner: team-billing\n\s+reason: OPS-231/);
    assert.match(details.readme, /^# allowed-registries/);
    assert.ok(details.cases.length > 5);
    for (const { text } of details.cases) assert.match(text, /^- name: /);
    assert.equal(details.parity, undefined);
    const { parity } = await requestJson("rule?name=always-pull-images");
    assert.equal(parity.minors.length, parity.cells.length);
    assert.match(parity.cells[0], /^\d+ \/ \d+ \/ \d+$/);
  });
});

describe("the feed of reviews", () => {
  const signer = createTestSigner(1);
  const path = `/${signer.segment("local")}/keep-it/validate`;
  const limits = { bytes: 40_000, reviews: 100, keep: 50 };
  /** Returns the rows that a page gets when it opens. */
  const readRows = (feed: ReturnType<typeof createReviewFeed>) => {
    const rows: ReviewRow[] = [];
    const unsubscribe = feed.subscribe("", (newRows) => rows.push(...newRows));
    unsubscribe();
    return rows;
  };

  /** Returns a feed and a function that sends reviews through an endpoint that the feed wraps. */
  const openFeed = (validate: Rule["validate"] = () => undefined) => {
    const keepRule = rule({ summary: "Keeps it.", match: [], validate });
    const feed = createReviewFeed({ publicKeys: signer.publicKey, writeLogLine: () => {} }, limits);
    const endpoint = {
      rule: "keep-it",
      clusters: { local: { keyVersions: [1], mode: "enforce", settings: {} } },
    } as const;
    const { answerRequest } = createEndpoint(keepRule, endpoint, feed.host, feed.evaluate);
    const send = async (request: object = {}, sentPath = path) => {
      // JSON.stringify can't write an object that is nested as deep.
      const deep = "[".repeat(100_000) + "]".repeat(100_000);
      const body = JSON.stringify(buildPodReview(request)).replace('"nested deep"', deep);
      return (await answerRequest(createHttpRequestBuilder(sentPath, body)())).code;
    };
    return { feed, send };
  };

  it("the feed of reviews shows why a review failed without the review's values", async () => {
    const { feed, send } = openFeed(({ metadata }) => {
      throw new Error(`no pod such as ${metadata?.labels?.hidden}, "other"`);
    });
    const stop = feed.subscribe("", () => {});
    assert.equal(await send({ object: { metadata: { name: "web", labels: { hidden: "S3cret-pa55" } } } }), 500);
    const [row] = readRows(feed);
    const { failure } = feed.find(row?.id ?? "") ?? {};
    assert.equal(failure, 'the rule failed: Error: no pod such as ***, "***"');
    assert.equal(row?.sentence, failure);
    stop();
  });

  const secrets = { group: "", version: "v1", resource: "secrets" };
  const sentences: [name: string, verdict: Verdict, request: object, sentence: string][] = [
    ["a refusal", "no\n  pod\u0007", {}, "no pod\ufffd"],
    ["a refusal with warnings", { refuse: "no", warnings: ["old"] }, {}, "no"],
    ["warnings", { warnings: ["it is old", "it is large"] }, {}, "it is old; it is large"],
    ["a long refusal", "a ".repeat(1000), {}, `${"a ".repeat(250).slice(0, 499)}…`],
    ["a warning that quotes a Secret", { warnings: ["not S3cret-pa55"] }, { resource: secrets }, "not ***"],
    ["an admission", undefined, {}, ""],
  ];
  for (const [name, verdict, request, sentence] of sentences)
    it(`the feed of reviews shows in a review's row the sentence of ${name}`, async () => {
      const { feed, send } = openFeed(() => verdict);
      const stop = feed.subscribe("", () => {});
      assert.equal(await send({ object: { metadata: { name: "web" }, data: { a: "S3cret-pa55" } }, ...request }), 200);
      assert.deepEqual(
        readRows(feed).map((row) => row.sentence),
        [sentence],
      );
      stop();
    });

  it("the feed of reviews shows in a group's row the names of its members with their sentences", () => {
    const { feed } = openFeed();
    const stop = feed.subscribe("", () => {});
    const member = { mode: "enforce", refused: false, operations: 0 } as const;
    const members = [
      { ...member, rule: "a", message: "it is old" },
      { ...member, rule: "b", operations: 1 },
      { ...member, rule: "c", message: "no", refused: true },
    ];
    const facts = {
      rule: "group",
      cluster: "local",
      code: 200,
      refused: true,
      operations: 0,
      milliseconds: 1,
      members,
    };
    feed.host.writeLogLine({ ...facts, function: "", version: "" });
    assert.equal(readRows(feed)[0]?.sentence, "a: it is old; c: no");
    stop();
  });

  it("a review costs only two calls of the console's and recording's functions while no page is open", async (test) => {
    const { feed, send } = openFeed();
    await send();
    const session = new Session();
    session.connect();
    await session.post("Profiler.enable");
    await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
    for (let count = 0; count < 1000; count++) assert.equal(await send(), 200);
    const { result } = await session.post("Profiler.takePreciseCoverage");
    session.disconnect();
    const calls = result
      .filter(({ url }) => /\/infra\/console\/|\/lib\/recording\//.test(url))
      .flatMap(({ functions }) => functions.map(({ functionName, ranges }) => [functionName, ranges[0]?.count ?? 0]))
      .filter(([, count]) => count !== 0);
    assert.deepEqual(Object.fromEntries(calls), { writeLogLine: 1000, evaluate: 1000 });
    /**
     * Returns the microseconds that a review takes in the fastest of 20 rounds, which other processes disturb least.
     */
    const measure = async () => {
      let fastest = Number.POSITIVE_INFINITY;
      for (let round = 0; round < 20; round++) {
        const start = performance.now();
        for (let count = 0; count < 500; count++) await send(buildRequest("a"));
        fastest = Math.min(fastest, ((performance.now() - start) / 500) * 1000);
      }
      return fastest;
    };
    const closed = await measure();
    const stop = feed.subscribe("", () => {});
    const opened = await measure();
    stop();
    test.diagnostic(`a review takes ${closed.toFixed(1)} µs with no page open, ${opened.toFixed(1)} µs with one`);
  });

  it("the feed of reviews sends a review to pages after 100 milliseconds", async (test) => {
    test.mock.timers.enable({ apis: ["setTimeout"] });
    const { feed, send } = openFeed();
    const rows: ReviewRow[] = [];
    const stop = feed.subscribe("", (newRows) => rows.push(...newRows));
    await send();
    await send();
    test.mock.timers.tick(99);
    assert.equal(rows.length, 0);
    test.mock.timers.tick(1);
    assert.equal(rows.length, 2);
    stop();
  });

  it("the feed of reviews keeps the newest reviews, and no more bytes than its limit", async () => {
    const { feed, send } = openFeed();
    const rows: ReviewRow[] = [];
    const stop = feed.subscribe("", (newRows) => rows.push(...newRows));
    // The feed keeps fewer of these than 30, because it keeps 40,000 bytes.
    for (let count = 0; count < 60; count++)
      await send({ object: { metadata: { name: `n${count}` }, data: "x".repeat(1000) } });
    await wait(300);
    const keptReviews = rows.flatMap(({ id }) => feed.find(id) ?? []);
    assert.equal(rows.length, 60);
    assert.ok(keptReviews.length > 3 && keptReviews.length < 30, String(keptReviews.length));
    assert.equal(keptReviews.at(-1)?.row.object, "Pod n59");
    assert.ok(keptReviews.reduce((sum, { bytes }) => sum + bytes, 0) <= limits.bytes);
    // A review that is larger than the limit, as text or in memory, isn't kept, and removes all older ones. The feed
    // counts 80 bytes for each empty object.
    for (const data of ["x".repeat(limits.bytes), Array(limits.bytes / 50).fill({})]) {
      await send();
      await send({ object: { metadata: { name: "large" }, data } });
      await wait(300);
      assert.equal(rows.at(-1)?.object, "Pod large");
      assert.deepEqual(
        rows.flatMap(({ id }) => feed.find(id) ?? []),
        [],
      );
    }
    stop();
  });

  it("the feed of reviews shows a failed request with a valid key, but no requests without a valid key", async () => {
    const { feed, send } = openFeed();
    const rows: ReviewRow[] = [];
    const stop = feed.subscribe("", (newRows) => rows.push(...newRows));
    for (const wrongPath of ["/local.key/keep-it/validate", path.replace("keep-it", "other")])
      assert.equal(await send({}, wrongPath), 404);
    assert.equal(await send({ operation: "OTHER" }), 400);
    stop();
    rows.push(...readRows(feed));
    assert.deepEqual(
      rows.map(({ verdict, cluster }) => [verdict, cluster]),
      [["failed: 400", "local"]],
    );
  });

  it("the feed of reviews shows a review whose object is nested too deep for JSON.stringify", async () => {
    const { feed, send } = openFeed();
    // `send` replaces "nested deep" by a list with 100,000 levels.
    assert.equal(await send({ object: { metadata: { name: "deep" }, data: "nested deep" } }), 200);
    const rows: ReviewRow[] = [];
    const stop = feed.subscribe("", (newRows) => rows.push(...newRows));
    assert.equal(await send({ object: { metadata: { name: "deep" }, data: "nested deep" } }), 200);
    await wait(300);
    assert.deepEqual(
      rows.map(({ object, verdict }) => [object, verdict]),
      [["Pod deep", "allowed"]],
    );
    assert.match(feed.find(rows[0]?.id ?? "")?.failure ?? "", /nested too deep/);
    stop();
  });

  it("the feed of reviews deletes all reviews some time after the last page was closed", async () => {
    const { feed, send } = openFeed();
    const rows: ReviewRow[] = [];
    const stop = feed.subscribe("", (newRows) => rows.push(...newRows));
    await send();
    await wait(300);
    stop();
    assert.ok(feed.find(rows[0]?.id ?? ""));
    await wait(300);
    assert.equal(feed.find(rows[0]?.id ?? ""), undefined);
    await send();
    assert.equal(rows.concat(readRows(feed)).length, 1);
  });

  const names = {
    "a long name": "x".repeat(1_000_000),
    markup: "<img src=x>",
    "control characters": "\u0000\u202e\ud800".repeat(300),
  };
  for (const [name, text] of Object.entries(names))
    it(`the gateway answers, and the feed shows, a review with ${name}`, async () => {
      const { feed, send } = openFeed();
      const rows: ReviewRow[] = [];
      const stop = feed.subscribe("", (newRows) => rows.push(...newRows));
      const kind = { group: "", version: "v1", kind: text };
      assert.equal(await send({ name: text, namespace: text, kind, userInfo: { username: text } }), 200);
      await wait(300);
      assert.equal(rows.length, 1);
      assert.ok(JSON.stringify(rows).length < 2000);
      stop();
    });
});

it("a page that opens gets all of 10,000 reviews, also if their names are long", async () => {
  const freePort = 0;
  const { host, open } = createConsole(freePort)({ publicKeys: "", writeLogLine: () => {} });
  // Only the details of a review need the loaded rules, and this test shows none.
  const getLoaded = () => assert.fail("a review's details are shown");
  const listener = await open({ file: "", state: folder, port: 0, getLoaded });
  // The console keeps reviews only while a page is open, so a first page is open before the reviews come.
  const firstStream = await openStream(undefined, listener.line.replace("Console: ", ""));
  // As JSON, a control character takes six bytes.
  const text = "\u0001".repeat(300);
  const userInfo = { username: text };
  const kind = { group: "", version: "v1", kind: text };
  const request = { ...buildRequest("a"), name: text, namespace: text, kind, userInfo };
  const facts = { rule: "limit-ranger", phase: "mutate", cluster: "c".repeat(63), code: 200 } as const;
  const outcome = { refused: false, operations: 0, milliseconds: 1, function: "", version: "" };
  for (let count = 0; count < 10_000; count++) host.writeLogLine({ ...facts, request, ...outcome });
  const late = await openStream(undefined, listener.line.replace("Console: ", ""));
  assert.equal((await late.waitFor(10_000)).length, 10_000);
  await Promise.all([firstStream.close(), late.close()]);
  await listener.close();
});

describe("the page's bundle", () => {
  it("the page's bundle is in the npm package, with the licence of the plot library", async () => {
    const project = await createTestFolder();
    await installPackage(project);
    const folder = join(project, "node_modules/postern/infra");
    const packed = await serveWithConsole(project, config, ["--port", "0"], join(folder, "postern.js"));
    for (const [path, content] of Object.entries({
      "page.js": "EventSource",
      "page.css": "--paper",
      rules: "always-deny",
      "rule?name=always-pull-images": '"parity":{',
    }))
      assert.ok((await (await fetch(new URL(path, packed.console))).text()).includes(content), path);
    const text = JSON.stringify(buildPod("a", "quay.io/a"));
    const question = { cluster: "local", user: "jane", operation: "", text };
    const checked = await fetch(new URL("check", packed.console), { method: "POST", body: JSON.stringify(question) });
    assert.match(await checked.text(), /"verdict":"denied"/);
    await packed.stop();
    assert.match(await readFile(join(folder, "console/bundle/LICENSES"), "utf8"), /^uplot [\d.]+[\s\S]*MIT License/);
  });

  it("the page's bundle has less than 100 KB, including its styles", async () => {
    const { outputFiles = [] } = await bundlePage("dist", { write: false });
    const bytes = outputFiles.reduce((sum, { contents }) => sum + contents.length, 0);
    assert.ok(bytes > 10_000 && bytes < 100_000, String(bytes));
  });
});
