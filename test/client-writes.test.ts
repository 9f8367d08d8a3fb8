import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { type Guard, guard, guardConfig } from "#lib/client/client.ts";
import { get } from "#lib/needs.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { rule } from "#lib/rule.ts";
import { createRecorder, failedPatchStatus } from "./client/recorder.ts";

// A guard is a client's `fetch` that applies rules to a program's writes. Tests single requests: what a guard sends to
// the API server, and what the program receives.
const server = "https://cluster.example:6443";
const collectionUrl = `${server}/api/v1/namespaces/a/configmaps`;
const objectUrl = `${collectionUrl}/one`;

type ConfigMap = KubernetesObject & { data?: Record<string, string> };
const buildConfigMap = (data: Record<string, string> = {}, metadata: object = {}): ConfigMap => {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "one", namespace: "a", ...metadata }, data };
};
const match = [
  { apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE", "UPDATE", "DELETE"] },
] as const;

/** A mutating rule that copies data.a to data.stamp. */
const stampRule = rule<ConfigMap>({
  summary: "Stamps.",
  match,
  mutate(object, { request }) {
    if (request.operation === "DELETE" || object.data?.stamp === object.data?.a) return;
    object.data = { ...object.data, stamp: object.data?.a ?? "none" };
  },
});
/** A validating rule that refuses changes of data.fixed, any data.bad, and deletions of an object with data.keep. */
const forbidRule = rule<ConfigMap>({
  summary: "Forbids.",
  match,
  validate: (object, { request, oldObject }) => {
    if (request.operation === "DELETE") return object.data?.keep && "it must be kept";
    if (oldObject?.data?.fixed !== undefined && oldObject.data.fixed !== object.data?.fixed) return "it is fixed";
    return {
      ...(object.data?.bad && { refuse: `${object.data.bad} is bad` }),
      warnings: object.data?.odd ? ['it is "odd", ä'] : [],
    };
  },
});
const bothRules: Guard = { rules: { stamps: { rule: stampRule }, forbids: { rule: forbidRule } } };
const jsonPost = { method: "POST", headers: { "content-type": "application/json" } };
const buildRequest = (method: string, body: unknown, type = "application/json") => {
  return { method, headers: { "content-type": type, authorization: "Bearer t" }, body: JSON.stringify(body) };
};
const buildMergePatch = (body: unknown) => buildRequest("PATCH", body, "application/merge-patch+json");
const buildStored = (data: Record<string, string> = {}) => ({
  [new URL(objectUrl).pathname]: buildConfigMap(data, { resourceVersion: "7" }),
});
const readStatus = async (response: Response) => {
  const { kind, code, reason, message } = Object(await response.json());
  assert.equal(kind, "Status");
  assert.equal(code, response.status);
  return { code, reason, message };
};

/** Sends a write through a guard to a server with these objects. Returns the response and what the server recorded. */
const write = async (
  address: string | Request,
  init?: RequestInit,
  options: Guard = bothRules,
  objects: Record<string, object> = {},
) => {
  const recorded = createRecorder(objects);
  return { ...recorded, response: await guard(recorded.send, options)(address, init) };
};

describe("a guarded write", () => {
  it("a guarded write is sent byte for byte if no rule changes it", async () => {
    await fc.assert(
      fc.asyncProperty(fc.json(), async (json) => {
        const body = ` {"kind":"ConfigMap", "apiVersion":"v1","more":${json},"big":12345678901234567890 } `;
        const { response, writes } = await write(collectionUrl, { ...jsonPost, body });
        assert.equal(response.status, 201);
        assert.equal(writes()[0]?.text, body);
      }),
    );
  });
  it("a guarded write is sent with the rules' changes, and with the new content length", async () => {
    const headers = { ...jsonPost.headers, "content-length": "9999" };
    const { writes } = await write(collectionUrl, {
      ...jsonPost,
      headers,
      body: JSON.stringify(buildConfigMap({ a: "1" })),
    });
    assert.deepEqual(writes()[0]?.body, buildConfigMap({ a: "1", stamp: "1" }));
    assert.notEqual(writes()[0]?.headers.get("content-length"), "9999");
  });
  it("a guarded write is sent as JSON if rules change it and it has no content type", async () => {
    const { send, writes } = createRecorder();
    // A rule adds the stamp to the first body. The second one has the stamp already.
    const bodies: Record<string, string>[] = [{ a: "1" }, { a: "1", stamp: "1" }];
    for (const data of bodies) {
      const body = Buffer.from(JSON.stringify(buildConfigMap(data)));
      await guard(send, bothRules)(collectionUrl, { method: "POST", body });
    }
    assert.deepEqual(
      writes().map(({ headers }) => headers.get("content-type")),
      ["application/json", null],
    );
  });
  it("a write that rules check first keeps its query and its headers", async () => {
    const { writes } = await write(
      `${collectionUrl}?fieldManager=me`,
      buildRequest("POST", buildConfigMap({ a: "1" })),
    );
    assert.equal(writes()[0]?.url, `${collectionUrl}?fieldManager=me`);
    assert.equal(writes()[0]?.headers.get("authorization"), "Bearer t");
  });
  it("a guarded write is not sent if a rule refuses it, and gets the API server's response", async () => {
    const { response, writes } = await write(collectionUrl, buildRequest("POST", buildConfigMap({ bad: "x" })));
    assert.deepEqual(await readStatus(response), {
      code: 403,
      reason: "Forbidden",
      message: 'admission webhook "forbids.postern.dev" denied the request: x is bad',
    });
    assert.deepEqual(writes(), []);
  });
  it("a guarded write gets the rules' warnings in headers, in the form of the API server's warnings", async () => {
    const { response } = await write(collectionUrl, buildRequest("POST", buildConfigMap({ odd: "x" })));
    const header = Buffer.from(response.headers.get("warning") ?? "", "latin1").toString();
    assert.equal(header, '299 - "it is \\"odd\\", ä"');
    assert.deepEqual(Object(await response.json()).kind, "ConfigMap");
  });

  const inputs: [name: string, build: (init: ReturnType<typeof buildRequest>) => [string | Request, RequestInit?]][] = [
    ["bytes", (init) => [collectionUrl, { ...init, body: Buffer.from(init.body) }]],
    ["a blob", (init) => [collectionUrl, { ...init, body: new Blob([init.body]) }]],
    [
      "a stream",
      (init) => [collectionUrl, { ...init, body: new Blob([init.body]).stream(), duplex: "half" } as RequestInit],
    ],
    ["a Request", (init) => [new Request(collectionUrl, init)]],
  ];
  for (const [name, build] of inputs)
    it(`a guarded write may be passed as ${name}`, async () => {
      const { response, writes } = await write(...build(buildRequest("POST", buildConfigMap({ a: "1" }))));
      assert.equal(response.status, 201);
      assert.deepEqual(writes()[0]?.body, buildConfigMap({ a: "1", stamp: "1" }));
      assert.equal(writes()[0]?.headers.get("authorization"), "Bearer t");
    });

  it("a guarded write is evaluated as an update of the current object if it is a PUT", async () => {
    const { send, writes, arrivals } = createRecorder(buildStored({ fixed: "1" }));
    const put = (data: Record<string, string>) =>
      guard(send, bothRules)(objectUrl, buildRequest("PUT", buildConfigMap(data)));
    assert.equal((await put({ fixed: "1", a: "2" })).status, 200);
    assert.deepEqual(writes()[0]?.body, buildConfigMap({ fixed: "1", a: "2", stamp: "2" }));
    assert.equal(arrivals[0]?.headers.get("authorization"), "Bearer t");
    // A rule refuses a change of the current object's data.fixed.
    assert.equal((await readStatus(await put({ fixed: "2" }))).code, 403);
  });
  it("a guarded write is evaluated as a creation if it is a PUT and there is no current object", async () => {
    const { send, writes } = createRecorder();
    const put = (data: Record<string, string>) =>
      guard(send, bothRules)(objectUrl, buildRequest("PUT", buildConfigMap(data)));
    assert.equal((await put({ bad: "1" })).status, 403);
    // The recorder, unlike an API server, creates no object for a PUT.
    assert.equal((await put({ a: "1" })).status, 404);
    assert.deepEqual(writes()[0]?.body, buildConfigMap({ a: "1", stamp: "1" }));
  });
  it("a guarded write is refused if it deletes an object whose deletion a rule refuses", async () => {
    const kept = await write(objectUrl, { method: "DELETE" }, bothRules, buildStored({ keep: "yes" }));
    assert.match((await readStatus(kept.response)).message, /denied the request: it must be kept$/);
    assert.deepEqual(kept.writes(), []);
    const deletion = { ...jsonPost, method: "DELETE", body: '{"dryRun":["All"]}' };
    const deleted = await write(objectUrl, deletion, bothRules, buildStored());
    assert.equal(deleted.response.status, 200);
    assert.equal(deleted.writes()[0]?.text, '{"dryRun":["All"]}');
  });
  it("a guarded write gets the API server's own 404 if there is nothing to delete or patch", async () => {
    assert.equal((await write(objectUrl, { method: "DELETE" })).response.status, 404);
    assert.equal((await write(objectUrl, buildMergePatch({}))).response.status, 404);
  });
  it("a guarded write is evaluated with the namespace and the kind of its URL", async () => {
    const evaluated: unknown[] = [];
    const recordingRule = rule<ConfigMap>({
      summary: "Records.",
      match,
      validate: (object, { request }) => void evaluated.push(object, request.kind),
    });
    const discovery = { v1: [{ resource: "configmaps", kind: "ConfigMap", namespaced: true }] };
    const capabilities = () => createRecordedCapabilities({ discovery });
    const options = { rules: { records: { rule: recordingRule } }, capabilities };
    const { writes } = await write(collectionUrl, { ...jsonPost, body: '{"metadata":{"name":"x"}}' }, options);
    const completed = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "x", namespace: "a" } };
    assert.deepEqual(evaluated, [completed, { group: "", version: "v1", kind: "ConfigMap" }]);
    assert.equal(writes()[0]?.text, '{"metadata":{"name":"x"}}');
  });

  it("later rules evaluate a write with earlier rules' changes, and then earlier rules evaluate it again", async () => {
    const evaluations: string[] = [];
    const createKeyAdder = (addedKey: string) =>
      rule<ConfigMap>({
        summary: "Adds a key.",
        match,
        mutate(object) {
          evaluations.push(`${addedKey}:${Object.keys(object.data ?? {})}`);
          object.data = { ...object.data, [addedKey]: "1" };
        },
      });
    // A rule with an `order` is evaluated before the rules without one, which follow by their names.
    const early = { ...createKeyAdder("early"), order: 3 };
    const rules = { b: { rule: createKeyAdder("b") }, a: { rule: createKeyAdder("a") }, z: { rule: early } };
    const { writes } = await write(collectionUrl, buildRequest("POST", buildConfigMap()), { rules });
    // Only b, the last rule, has been evaluated with all changes, so the rules before it are evaluated again.
    assert.deepEqual(evaluations, ["early:", "a:early", "b:early,a", "early:early,a,b", "a:early,a,b"]);
    assert.deepEqual(Object(writes()[0]?.body).data, { early: "1", a: "1", b: "1" });
  });
  it("a guarded write in modes warn and audit is sent unchanged, and the rules' outcomes are reported", async () => {
    const rules = {
      stamps: { rule: stampRule, mode: "warn" as const },
      forbids: { rule: forbidRule, mode: "audit" as const },
    };
    const outcomes: string[] = [];
    const onOutcome: Guard["onOutcome"] = ({ rule, decision }) => void outcomes.push(`${rule} ${decision?.refused}`);
    const request = buildRequest("POST", buildConfigMap({ bad: "1", a: "1" }));
    const { response, writes } = await write(collectionUrl, request, { rules, onOutcome });
    assert.equal(response.headers.get("warning"), '299 - "stamps would change: /data/stamp"');
    assert.deepEqual(writes()[0]?.body, buildConfigMap({ bad: "1", a: "1" }));
    assert.deepEqual(outcomes, ["stamps false", "forbids true"]);
  });

  const fail = () => {
    throw new Error("no");
  };
  const failingRule = rule({ summary: "Fails.", match, validate: fail });
  it("a guarded write gets an error if a rule fails, unless failurePolicy is Ignore", async () => {
    const rules = { fails: { rule: failingRule } };
    const { response, writes } = await write(collectionUrl, buildRequest("POST", buildConfigMap()), { rules });
    assert.deepEqual(await readStatus(response), {
      code: 500,
      reason: "InternalError",
      message: 'Internal error occurred: failed calling webhook "fails.postern.dev": the rule failed: Error: no',
    });
    assert.deepEqual(writes(), []);
    const ignoring = await write(collectionUrl, buildRequest("POST", buildConfigMap()), {
      rules,
      failurePolicy: "Ignore",
    });
    assert.equal(ignoring.response.status, 201);
  });
  it("a guarded write gets an error if the current object can't be read, unless failurePolicy is Ignore", async () => {
    const { send, writes, scripted } = createRecorder(buildStored());
    const createRefusal = () => ({ method: "GET", answer: new Response("{}", { status: 403 }) });
    scripted.push(createRefusal(), createRefusal());
    const put = (options: Guard) => guard(send, options)(objectUrl, buildRequest("PUT", buildConfigMap()));
    const { code, message } = await readStatus(await put(bothRules));
    assert.deepEqual(
      [code, message],
      [500, "the current object, which rules need, can't be read: the API server answers 403"],
    );
    assert.equal(writes().length, 0);
    assert.equal((await put({ ...bothRules, failurePolicy: "Ignore" })).status, 200);
  });
  it("a guarded write rejects with fetch's error if the request fails", async () => {
    const send = async () => {
      throw new TypeError("fetch failed");
    };
    await assert.rejects(guard(send, bothRules)(collectionUrl, buildRequest("POST", buildConfigMap())), /fetch failed/);
  });
  it("a guarded write rejects with an AbortError if the program aborts the write while a rule waits", async () => {
    const abortController = new AbortController();
    const waitingRule = rule({
      summary: "Waits.",
      match,
      needs: { space: get("namespaces") },
      async validate(_, { space }) {
        setTimeout(() => abortController.abort(), 20);
        await space({ name: "a" });
      },
    });
    const send: typeof fetch = (_, init) =>
      new Promise((_, reject) => init?.signal?.addEventListener("abort", () => reject(init.signal?.reason)));
    const init = { ...buildRequest("POST", buildConfigMap()), signal: abortController.signal };
    const guarded = guard(send, { rules: { waits: { rule: waitingRule } } });
    await assert.rejects(guarded(collectionUrl, init), { name: "AbortError" });
  });
  it("a guarded write's headers are used for rules' reads, which are cached for each user separately", async () => {
    const { send, arrivals } = createRecorder({
      "/api/v1/namespaces/a": { apiVersion: "v1", kind: "Namespace", metadata: { name: "a", labels: { x: "y" } } },
    });
    // By its selector, the rule makes the guard read the namespace.
    const selective = { ...forbidRule, namespaceSelector: { matchLabels: { x: "y" } } };
    const guarded = guard(send, { rules: { selective: { rule: selective } } });
    for (const user of ["one", "one", "two"]) {
      const init = buildRequest("POST", buildConfigMap({ bad: "1" }));
      const headers = { ...init.headers, authorization: user, "x-own": "1" };
      assert.equal((await guarded(collectionUrl, { ...init, headers })).status, 403);
    }
    assert.deepEqual(
      arrivals.map(({ url, headers }) => [new URL(url).pathname, headers.get("authorization"), headers.get("x-own")]),
      ["one", "two"].map((user) => ["/api/v1/namespaces/a", user, "1"]),
    );
  });
  it("a guarded write is not evaluated by a rule whose selectors don't select its namespace or object", async () => {
    const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "a" } };
    const objects = { "/api/v1/namespaces/a": namespace };
    for (const selector of ["namespaceSelector", "objectSelector"]) {
      const rules = { selective: { rule: { ...forbidRule, [selector]: { matchLabels: { x: "y" } } } } };
      const { response } = await write(
        collectionUrl,
        buildRequest("POST", buildConfigMap({ bad: "1" })),
        { rules },
        objects,
      );
      assert.equal(response.status, 201);
    }
  });
});

describe("a guarded patch", () => {
  const kinds: [name: string, body: unknown, contentType: string][] = [
    ["a merge", { data: { a: "1", stamp: "1" } }, "application/merge-patch+json"],
    ["a strategic merge", { data: { a: "1", stamp: "1" } }, "application/strategic-merge-patch+json; charset=utf-8"],
    [
      "a JSON patch",
      [
        { op: "add", path: "/data/a", value: "1" },
        { op: "add", path: "/data/stamp", value: "1" },
      ],
      "application/json-patch+json",
    ],
    ["an apply", buildConfigMap({ a: "1", stamp: "1" }), "application/apply-patch+yaml"],
  ];
  for (const [name, body, type] of kinds)
    it(`a guarded patch is sent unchanged if no rule changes the patched object: ${name}`, async () => {
      const { response, writes } = await write(objectUrl, buildRequest("PATCH", body, type), bothRules, buildStored());
      assert.equal(response.status, 200);
      assert.deepEqual(
        writes().map(({ body, headers }) => [body, headers.get("content-type")]),
        [[body, type]],
      );
    });
  for (const [name, body, type] of [
    ["a merge", { data: { a: "1" } }, "application/merge-patch+json"],
    ["a JSON patch", [{ op: "add", path: "/data/a", value: "1" }], "application/json-patch+json"],
  ] as const)
    it(`a guarded patch that rules change is sent as the difference from the current object: ${name}`, async () => {
      const patch = buildRequest("PATCH", body, type);
      const address = `${objectUrl}?fieldManager=me`;
      const { response, writes, stored } = await write(address, patch, bothRules, buildStored({ old: "1" }));
      assert.equal(response.status, 200);
      const [sent] = writes();
      assert.ok(sent);
      assert.equal(sent.headers.get("content-type"), "application/json-patch+json");
      assert.equal(sent.url, address);
      assert.deepEqual(sent.body, [
        { op: "test", path: "/metadata/resourceVersion", value: "7" },
        { op: "add", path: "/data/a", value: "1" },
        { op: "add", path: "/data/stamp", value: "1" },
      ]);
      assert.deepEqual(Object(stored.get(new URL(objectUrl).pathname)).data, { old: "1", a: "1", stamp: "1" });
    });
  it("a guarded patch is refused if a rule refuses the patched object", async () => {
    const patch = buildMergePatch({ data: { bad: "x" } });
    const { response, writes } = await write(objectUrl, patch, bothRules, buildStored());
    assert.match((await readStatus(response)).message, /x is bad$/);
    assert.deepEqual(writes(), []);
  });
  it("a guarded patch is tried up to three more times if another client changed the object first", async () => {
    const { send, writes, arrivals } = createRecorder(buildStored());
    let conflictsLeft = 2;
    const sendWithConflicts: typeof fetch = async (input, init) => {
      const isDryRun = String(input).includes("dryRun");
      if (init?.method !== "PATCH" || isDryRun || conflictsLeft === 0) return send(input, init);
      conflictsLeft--;
      return Response.json(failedPatchStatus, { status: 422 });
    };
    const patch = (a: string) => guard(sendWithConflicts, bothRules)(objectUrl, buildMergePatch({ data: { a } }));
    assert.equal((await patch("1")).status, 200);
    assert.equal(arrivals.filter(({ method }) => method === "GET").length, 3);
    assert.equal(writes().length, 1);
    conflictsLeft = 9;
    assert.equal((await patch("2")).status, 422);
    // The guard sent the patch four times.
    assert.equal(conflictsLeft, 5);
  });
  it("a guarded patch gets the API server's response, and isn't sent again, if its dry run is refused", async () => {
    const { send, scripted, writes } = createRecorder(buildStored());
    const refusal = { kind: "Status", code: 422, message: "no" };
    scripted.push({ method: "PATCH", answer: Response.json(refusal, { status: 422 }) });
    const response = await guard(send, bothRules)(objectUrl, buildMergePatch({ data: 5 }));
    assert.deepEqual(await response.json(), refusal);
    assert.deepEqual(writes(), []);
  });

  it("a server-side apply stays one if rules change named list elements, and fails for unnamed elements", async () => {
    const podUrl = `${server}/api/v1/namespaces/a/pods/one`;
    const pullRule = rule<KubernetesObject & { spec: { containers: { imagePullPolicy?: string }[] } }>({
      summary: "Always pulls images.",
      match: [{ ...match[0], resources: ["pods"] }],
      mutate(pod) {
        for (const container of pod.spec.containers) container.imagePullPolicy = "Always";
      },
    });
    const objects = { [new URL(podUrl).pathname]: { apiVersion: "v1", kind: "Pod", spec: {} } };
    const apply = (containers: object[]) => {
      const body = { apiVersion: "v1", kind: "Pod", spec: { containers } };
      const init = buildRequest("PATCH", body, "application/apply-patch+yaml");
      return write(podUrl, init, { rules: { pulls: { rule: pullRule } } }, objects);
    };
    const { response, writes } = await apply([{ name: "c", image: "i" }]);
    assert.equal(response.status, 200);
    assert.deepEqual(Object(writes()[0]?.body).spec, {
      containers: [{ name: "c", image: "i", imagePullPolicy: "Always" }],
    });
    assert.equal(writes()[0]?.headers.get("content-type"), "application/apply-patch+yaml");

    const { code, message } = await readStatus((await apply([{ image: "i" }])).response);
    assert.equal(code, 422);
    assert.match(message, /a server-side apply can't express \(the change is in a list, at \/spec\/containers\/0/);
  });
});

/** A body that a guard refuses with this code and message. */
interface RefusedBody {
  name: string;
  code: number;
  message: string;
  type?: string;
  encoding?: string;
  body?: string;
}
const refusedBodies: RefusedBody[] = parse(
  readFileSync(new URL("client/refused-bodies.yaml", import.meta.url), "utf8"),
);

describe("a guard that gets an unusual write", () => {
  const refused: [string, number, string, RequestInit][] = [
    ...refusedBodies.map(({ name, code, message, type, encoding, body }): (typeof refused)[number] => {
      const headers = { ...(type && { "content-type": type }), ...(encoding && { "content-encoding": encoding }) };
      return [name, code, message, { method: "POST", headers, ...(body !== undefined && { body }) }];
    }),
    ["a body that is too long", 413, "limit is 3145728", { ...jsonPost, body: `{"a":"${"x".repeat(4_000_000)}"}` }],
    [
      "an endless body",
      413,
      "limit is 3145728",
      { ...jsonPost, body: createEndlessBody(), duplex: "half" } as RequestInit,
    ],
    ["a form", 415, "multipart/form-data", { method: "POST", body: new FormData() }],
    ["a body that is not UTF-8", 400, "the body is not JSON", { ...jsonPost, body: new Uint8Array([123, 255, 125]) }],
  ];
  for (const [name, code, message, init] of refused)
    it(`a guard refuses ${name}`, async () => {
      const { response, arrivals } = await write(collectionUrl, init);
      const status = await readStatus(response);
      assert.equal(status.code, code);
      assert.ok(status.message.includes(message), status.message);
      assert.deepEqual(arrivals, []);
    });
  it("a guard refuses a write to a relative URL, because only fetch knows the base of the URL", async () => {
    const { send, arrivals } = createRecorder();
    for (const options of [bothRules, { ...bothRules, server }])
      for (const address of ["/api/v1/namespaces/a/configmaps", "api/v1/namespaces/a/configmaps"]) {
        const init = { ...jsonPost, body: JSON.stringify(buildConfigMap({ bad: "x" })) };
        const status = await readStatus(await guard(send, options)(address, init));
        assert.equal(status.code, 400);
        assert.match(status.message, /must begin with https/);
      }
    assert.deepEqual(arrivals, []);
    // A path that is none of the API's is forwarded.
    const forwarded: unknown[] = [];
    const recordInput: typeof fetch = async (input) => {
      forwarded.push(input);
      return new Response();
    };
    await guard(recordInput, bothRules)("/elsewhere", { method: "POST", body: "x" });
    assert.deepEqual(forwarded, ["/elsewhere"]);
  });
  it("a guard evaluates an object with unusual keys", async () => {
    await fc.assert(
      fc.asyncProperty(fc.dictionary(fc.string(), fc.jsonValue()), fc.nat(2), async (data, indent) => {
        const body = JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", other: data }, undefined, indent);
        const { response } = await write(
          collectionUrl,
          { ...jsonPost, body },
          { rules: { forbids: { rule: forbidRule } } },
        );
        assert.equal(response.status, 201);
      }),
    );
  });
  it("a guard refuses a server-side apply in YAML that is not JSON", async () => {
    const headers = { "content-type": "application/apply-patch+yaml" };
    const init = { method: "PATCH", headers, body: "kind: ConfigMap" };
    const { response } = await write(objectUrl, init, bothRules, buildStored());
    assert.match(
      (await readStatus(response)).message,
      /is not JSON; rules evaluate application\/apply-patch\+yaml only as JSON/,
    );
  });
  it("a guard responds to any text with any content type", async () => {
    const configMap = fc.json().map((json) => `{"kind":"ConfigMap","apiVersion":"v1","data":${json}}`);
    const text = fc.oneof(fc.json(), fc.string(), configMap);
    const patchTypes = ["application/merge-patch+json", "application/apply-patch+yaml"];
    const types = fc.constantFrom("application/json", ...patchTypes, "a/b");
    await fc.assert(
      fc.asyncProperty(text, types, fc.constantFrom("POST", "PUT", "PATCH", "DELETE"), async (body, type, method) => {
        const init = { method, headers: { "content-type": type }, body };
        const { response } = await write(method === "POST" ? collectionUrl : objectUrl, init, bothRules, buildStored());
        assert.ok([200, 201, 400, 403, 415, 422, 500].includes(response.status), String(response.status));
      }),
    );
  });
  it("a guard sends a write unchanged if no rule matches the resource", async () => {
    const init = { method: "POST", headers: { "content-type": "application/yaml" }, body: "kind: Secret" };
    const { writes } = await write(`${server}/api/v1/namespaces/a/secrets`, init);
    assert.equal(writes()[0]?.text, "kind: Secret");
  });
  it("a guard evaluates an object with keys that are also names of members of prototypes", async () => {
    const body =
      '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"__proto__":"p","constructor":"c","a":"1"}}';
    const { writes } = await write(collectionUrl, { ...jsonPost, body });
    const { data } = Object(writes()[0]?.body);
    assert.deepEqual(Object.entries(data), [
      ["__proto__", "p"],
      ["constructor", "c"],
      ["a", "1"],
      ["stamp", "1"],
    ]);
  });
  it("a guard refuses an object that nests deeper than 1000 levels", async () => {
    const { send, writes } = createRecorder();
    const nestBody = (depth: number) =>
      `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1"},"deep":${"[".repeat(depth)}${"]".repeat(depth)}}`;
    const sendNested = (depth: number) => guard(send, bothRules)(collectionUrl, { ...jsonPost, body: nestBody(depth) });
    assert.equal((await readStatus(await sendNested(300_000))).message, "the body nests deeper than 1000 levels");
    assert.equal((await sendNested(900)).status, 201);
    assert.equal(Object(writes()[0]?.body).data.stamp, "1");
  });
});

describe("a guard", () => {
  const wrong: [name: string, options: Guard, sentence: RegExp][] = [
    [
      "an unknown setting",
      { rules: { r: { rule: stampRule, settings: { x: 1 } } } },
      /^rules\.r\.settings\.x is unknown/,
    ],
    [
      "a variant of a rule that has no variants",
      { rules: { r: { rule: stampRule, variant: "v" } } },
      /^rules\.r\.variant must be one of none$/,
    ],
    [
      "a rule that asks the authorizer",
      { rules: { r: { rule: { ...forbidRule, authorizedBy: { a: "true" } } } } },
      /^r uses the cluster's authorizer/,
    ],
    ["an invalid policy", { policies: [{ kind: "Nothing" } as never] }, /^policies: Nothing without a name/],
    ["an invalid address", { ...bothRules, server: "cluster" }, /^server must be a URL/],
  ];
  for (const [name, options, sentence] of wrong)
    it(`a guard isn't created with ${name}`, () =>
      assert.throws(
        () => guard(fetch, options),
        (error: Error) => sentence.test(error.message),
      ));
  it("a guard isn't created from a configuration without an httpApi", () => {
    class Api {}
    const config = { makeApiClient: (api: new (configuration: object) => Api) => new api({}) };
    assert.throws(
      () => guardConfig(config, bothRules).makeApiClient(Api),
      /configuration of an API client must have an httpApi$/,
    );
  });
});

function createEndlessBody() {
  return new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(100_000).fill(32)) });
}
