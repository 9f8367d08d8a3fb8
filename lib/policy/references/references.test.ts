import assert from "node:assert/strict";
import { suite, test } from "node:test";
import fc from "fast-check";
import { policyCases, reachOver, subjectOf } from "../../../infra/bench/example-policies.ts";
import { draft } from "../../patch.ts";
import type { KubernetesObject } from "../../review.ts";
import type { HttpReference, Reach, Reference, Subject } from "../kinds.ts";
import { resolve } from "./references.ts";

const named = (kind: string, name: string, namespace: string | undefined, rest: object = {}): KubernetesObject => {
  return { apiVersion: "v1", kind, metadata: { name, ...(namespace && { namespace }), ...rest } };
};

const pod = {
  ...named("Pod", "web", "b", {
    labels: { app: "x", comma: "a,b=c" },
    annotations: { host: "api", path: "a/b?c#d%e\\f", up: "..", dot: ".", port: "8443", evil: "x/y@z", empty: "" },
    ownerReferences: [{ apiVersion: "v1", kind: "Owner", name: "o", uid: "1" }],
  }),
  spec: { replicas: 3, none: null, list: [{ a: 1 }] },
};
const created: Subject = { operation: "CREATE", object: pod, namespace: "b" };

const cluster = [
  named("Owner", "o", "a"),
  { ...named("Owner", "o", "b"), data: "of b" },
  { ...named("Config", "z", "a", { labels: { app: "x" } }), data: "z" },
  { ...named("Config", "a", "b", { labels: { app: "x" } }), data: "a" },
  { ...named("Config", "web", "b"), data: "web" },
];
const reach = reachOver({ cluster, http: [{ path: "/x", body: { data: { n: null }, header: "in the body" } }] });

/** A reach that tells what it was asked to fetch. */
const spying = (): { asked: HttpReference[]; reach: Reach } => {
  const asked: HttpReference[] = [];
  const fetch: Reach["fetch"] = async (request) => {
    asked.push(request);
    return { body: {}, header: {}, trailer: {} };
  };
  return { asked, reach: { ...reach, fetch } };
};

suite("a reference", () => {
  const k8s = { apiVersion: "v1", kind: "Config" };
  const found: [name: string, reference: Reference, value: unknown, subject?: Subject][] = [
    ["reads the object", { from: "current", path: "/spec/list/0/a" }, 1],
    ["takes null for a value", { from: "current", path: "spec.none" }, null],
    [
      "reads what an update replaces",
      { from: "old", path: "/metadata/name" },
      "was",
      { ...created, operation: "UPDATE", oldObject: named("Pod", "was", "b") },
    ],
    ["reads the owner in the object's namespace", { from: "owner", path: "data" }, "of b"],
    [
      "reads the owner in the request's namespace",
      { from: "owner", path: "data" },
      "of b",
      { ...created, object: { ...pod, metadata: { ...pod.metadata, namespace: "" } } },
    ],
    [
      "reads an object by name",
      { from: "k8s", path: "data", k8s: { ...k8s, name: "{{metadata.name}}", namespace: "{{metadata.namespace}}" } },
      "web",
    ],
    [
      "reads an object by labels in all namespaces, the first by namespace and name",
      {
        from: "k8s",
        path: "data",
        k8s: { ...k8s, labelSelector: { matchLabels: { app: "{{metadata.labels.app}}" } } },
      },
      "z",
    ],
    [
      "reads an object by labels in a namespace",
      {
        from: "k8s",
        path: "data",
        k8s: {
          ...k8s,
          namespace: "b",
          labelSelector: { matchExpressions: [{ key: "app", operator: "In", values: ["{{metadata.labels.app}}"] }] },
        },
      },
      "a",
    ],
    [
      "prefers the name",
      {
        from: "k8s",
        path: "data",
        k8s: { ...k8s, name: "web", namespace: "b", labelSelector: { matchLabels: { app: "x" } } },
      },
      "web",
    ],
    ["reads an answer's body", { from: "http", path: "/body/data/n", http: { url: "http://mock/x" } }, null],
    [
      "reads in the body what doesn't say where",
      { from: "http", path: "data.n", http: { url: "http://mock/x", method: "get" } },
      null,
    ],
    [
      "reads an answer's header",
      { from: "http", path: "header.Content-Type[0]", http: { url: "http://mock/x" } },
      "text/plain; charset=utf-8",
    ],
  ];
  for (const [name, reference, value, subject = created] of found)
    test(name, async () => assert.deepEqual(await resolve(reference, subject, reach), { value }));

  const nothing: [name: string, reference: Reference, subject?: Subject][] = [
    ["where a key is missing", { from: "current", path: "/spec/other/deep" }],
    ["behind the end of a list", { from: "current", path: "/spec/list/1" }],
    ["in a map by index", { from: "current", path: "/spec/0" }],
    ["in a list by key", { from: "current", path: "/spec/list/length" }],
    ["below a scalar", { from: "current", path: "/spec/replicas/a" }],
    ["below null", { from: "current", path: "/spec/none/a" }],
    ["in the prototype", { from: "current", path: "/spec/constructor/name" }],
    ["in an old object of a creation", { from: "old", path: "/metadata/name" }, { ...created, oldObject: pod }],
    [
      "in an old object of a deletion",
      { from: "old", path: "/metadata/name" },
      { ...created, operation: "DELETE", oldObject: pod },
    ],
    [
      "in an owner of what has none",
      { from: "owner", path: "/metadata/name" },
      { ...created, object: named("Pod", "p", "b", { ownerReferences: [] }) },
    ],
    ["where a name can't be filled", { from: "k8s", path: "data", k8s: { ...k8s, name: "{{metadata.uid}}" } }],
    [
      "where a namespace can't be filled",
      { from: "k8s", path: "data", k8s: { ...k8s, name: "a", namespace: "{{metadata.uid}}" } },
    ],
    [
      "where a label can't be filled",
      { from: "k8s", path: "data", k8s: { ...k8s, labelSelector: { matchLabels: { app: "{{metadata.uid}}" } } } },
    ],
    [
      "where no object has the labels",
      { from: "k8s", path: "data", k8s: { ...k8s, labelSelector: { matchLabels: { app: "y" } } } },
    ],
  ];
  for (const [name, reference, subject = created] of nothing)
    test(`finds nothing ${name}`, async () => assert.equal(await resolve(reference, subject, reach), undefined));

  const post = { url: "http://mock/x", method: "post" };
  const refused: [name: string, reference: unknown, sentence: string | RegExp, subject?: Subject][] = [
    ["be an object", "current", "a reference must be an object"],
    ["have a path", { from: "current" }, /^path must be a path/],
    ["come from somewhere", { from: "new", path: "a" }, 'from must be current, old, owner, k8s or http, not "new"'],
    ["not lead through the prototype", { from: "constructor", path: "a" }, /^from must be/],
    [
      "find the object that it names",
      { from: "k8s", path: "a", k8s: { ...k8s, name: "other", namespace: "b" } },
      'there is no Config "other" in namespace "b"',
    ],
    [
      "find the owner",
      { from: "owner", path: "a" },
      'there is no Owner "o" in namespace "c"',
      { ...created, object: { ...pod, metadata: { ...pod.metadata, namespace: "c" } } },
    ],
    [
      "have an owner that can be read",
      { from: "owner", path: "a" },
      "metadata.ownerReferences[0].kind must be a string",
      { ...created, object: named("Pod", "p", "b", { ownerReferences: [{ apiVersion: "v1", name: "o" }] }) },
    ],
    [
      "be of a kind that is served, whatever its placeholders come to",
      {
        from: "k8s",
        path: "a",
        k8s: { apiVersion: "v1", kind: "deployment", name: "a", namespace: "{{metadata.uid}}" },
      },
      "the cluster serves no deployment of v1",
    ],
    [
      "be of a kind that is served, whatever its labels come to",
      {
        from: "k8s",
        path: "a",
        k8s: { apiVersion: "v1", kind: "deployment", labelSelector: { matchLabels: { a: "{{metadata.uid}}" } } },
      },
      "the cluster serves no deployment of v1",
    ],
    ["say which object", { from: "k8s", path: "a" }, "k8s must say which object is meant"],
    ["say which object by name or labels", { from: "k8s", path: "a", k8s }, "k8s must have a name or a labelSelector"],
    ["have a kind", { from: "k8s", path: "a", k8s: { apiVersion: "v1" } }, "k8s.kind must be a string"],
    ["have a name that is text", { from: "k8s", path: "a", k8s: { ...k8s, name: 5 } }, "k8s.name must be a string"],
    [
      "not make an empty name",
      { from: "k8s", path: "a", k8s: { ...k8s, name: "{{metadata.annotations.empty}}" } },
      /^k8s.name becomes ""/,
    ],
    [
      "not make a name that leads up",
      { from: "k8s", path: "a", k8s: { ...k8s, name: ".{{metadata.annotations.dot}}" } },
      /^k8s.name becomes "\.\."/,
    ],
    [
      "not make a name of several steps",
      { from: "k8s", path: "a", k8s: { ...k8s, namespace: "{{metadata.annotations.path}}", name: "a" } },
      /^k8s.namespace becomes/,
    ],
    [
      "not make labels that say more than one thing",
      { from: "k8s", path: "a", k8s: { ...k8s, labelSelector: { matchLabels: { app: "{{metadata.labels.comma}}" } } } },
      "k8s.labelSelector is no valid label selector",
    ],
    [
      "not have labels that are none",
      { from: "k8s", path: "a", k8s: { ...k8s, labelSelector: { matchExpressions: [{ key: "a", operator: "In" }] } } },
      "k8s.labelSelector is no valid label selector",
    ],
    [
      "not have an empty placeholder",
      { from: "k8s", path: "a", k8s: { ...k8s, name: "{{}}" } },
      /has a placeholder without a path/,
    ],
    ["say where to ask", { from: "http", path: "a" }, "http must say where to ask"],
    ["have an address", { from: "http", path: "a", http: {} }, "http.url must be a string"],
    [
      "have an address of HTTP",
      { from: "http", path: "a", http: { url: "file:///etc/passwd" } },
      "http.url must begin with http:// or https://",
    ],
    [
      "not have a scheme from the object",
      { from: "http", path: "a", http: { url: "{{metadata.annotations.host}}://x" } },
      "http.url must begin with http:// or https://",
    ],
    [
      "have a method of the two",
      { from: "http", path: "a", http: { url: "http://mock/x", method: "PUT" } },
      'http.method must be GET or POST, not "PUT"',
    ],
    [
      "have parameters that are texts",
      { from: "http", path: "a", http: { url: "http://mock/x", params: { a: 1 } } },
      "http.params.a must be a string",
    ],
    [
      "have parameters that are a map",
      { from: "http", path: "a", http: { url: "http://mock/x", params: ["a"] } },
      "http.params must be a map of strings",
    ],
    [
      "not be sent as POST on a dry run",
      { from: "http", path: "a", http: post },
      /^a dry run sends no POST/,
      { ...created, dryRun: true },
    ],
    [
      "not make a host that is none",
      { from: "http", path: "a", http: { url: "http://{{metadata.annotations.evil}}/x" } },
      `http.url becomes wrong: "x/y@z" can't be part of a host's name`,
    ],
    [
      "not make a host of nothing",
      { from: "http", path: "a", http: { url: "http://mock{{metadata.annotations.empty}}/x" } },
      /can't be part of a host's name$/,
    ],
    [
      "not lead up in an address",
      { from: "http", path: "a", http: { url: "http://mock/x/{{metadata.annotations.up}}/y" } },
      /^http.url becomes wrong: a step/,
    ],
    [
      "not lead up in an address bit by bit",
      {
        from: "http",
        path: "a",
        http: { url: "http://mock/x/{{metadata.annotations.dot}}{{metadata.annotations.dot}}" },
      },
      /^http.url becomes wrong: a step/,
    ],
  ];
  for (const [name, reference, sentence, subject = created] of refused)
    test(`must ${name}`, async () => {
      const given = reference as Reference;
      await assert.rejects(resolve(given, subject, reach), { name: "Error", message: sentence });
    });

  const url = async (text: string) => {
    const { asked, reach } = spying();
    await resolve({ from: "http", path: "a", http: { url: text } }, created, reach);
    return asked[0]?.url;
  };

  test("fills an address so that an object's text stays one step of it", async () => {
    assert.equal(
      await url(
        "https://{{metadata.annotations.host}}.example.com:{{metadata.annotations.port}}/x/{{metadata.annotations.path}}?q={{metadata.annotations.path}}",
      ),
      "https://api.example.com:8443/x/a%2Fb%3Fc%23d%25e%5Cf?q=a%2Fb%3Fc%23d%25e%5Cf",
    );
    assert.equal(await url("http://mock/x?up=/{{metadata.annotations.up}}"), "http://mock/x?up=/..");
    assert.equal(await url("http://mock/x/../y"), "http://mock/x/../y");
  });

  test("keeps the steps of an address whatever an object has", async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "binary" }), async (name) => {
        const { asked, reach } = spying();
        const subject = { ...created, object: named("Pod", name, "b") };
        const http = { url: "https://h.example/a/{{metadata.name}}/b?c={{metadata.name}}#d" };
        await resolve({ from: "http", path: "a", http }, subject, reach).catch((error) =>
          assert.match(String(error), /http.url becomes wrong/),
        );
        if (asked[0] === undefined) return;
        const { host, pathname, searchParams, hash } = new URL(asked[0].url);
        assert.deepEqual([host, pathname.split("/").length, hash], ["h.example", 4, "#d"]);
        assert.deepEqual([...searchParams], [["c", name.toWellFormed()]]);
      }),
    );
  });

  test("sends everything else as it is, and fills parameters without encoding them", async () => {
    const { asked, reach } = spying();
    const http = {
      url: "http://mock/x",
      method: "post",
      header: { A: "{{metadata.name}}" },
      params: { p: "{{metadata.annotations.path}}", n: "{{spec.replicas}}" },
      body: { a: "{{metadata.name}}" },
      auth: { staticToken: "t" },
    };
    await resolve({ from: "http", path: "a", http }, created, reach);
    assert.deepEqual(asked, [{ ...http, method: "POST", params: { p: "a/b?c#d%e\\f", n: "3" } }]);
  });

  test("makes no request where something can't be filled, on a dry run neither", async () => {
    const { asked, reach } = spying();
    const http = { ...post, params: { a: "{{metadata.uid}}" } };
    assert.equal(await resolve({ from: "http", path: "a", http }, { ...created, dryRun: true }, reach), undefined);
    assert.deepEqual(asked, []);
  });

  test("asks on a dry run what only reads", async () => {
    const { asked, reach } = spying();
    await resolve({ from: "http", path: "a", http: { url: "http://mock/x" } }, { ...created, dryRun: true }, reach);
    assert.equal(asked[0]?.method, "GET");
  });

  test("reads a draft as it was written", async () => {
    const { value } = draft<typeof pod>(structuredClone(pod));
    value.spec.replicas = 4;
    const subject = { ...created, object: value };
    assert.deepEqual(await resolve({ from: "current", path: "/spec/replicas" }, subject, reach), { value: 4 });
    const owner = await resolve({ from: "owner", path: "data" }, subject, reach);
    assert.deepEqual(owner, { value: "of b" });
  });
});

suite("a measured template", () => {
  for (const given of policyCases) {
    const [policy] = given.policies;
    if (
      policy?.kind !== "OverridePolicy" ||
      given.expect.policy === "rejected" ||
      given.id === "rules-see-earlier-rules"
    )
      continue;
    for (const [index, { overriders, targetOperations }] of policy.spec.overrideRules.entries()) {
      const { template } = overriders;
      if (!template?.valueRef || template.value || !(targetOperations ?? [given.operation]).includes(given.operation))
        continue;
      const reference = template.valueRef;
      test(`finds what it refers to: ${given.id} ${index}`, async () => {
        const found = resolve(reference, subjectOf(given), reachOver(given));
        if (given.expect.error && given.policies.length === 1) await found.catch(() => {});
        else {
          const annotations: Record<string, unknown> = given.expect.object?.metadata?.[template.type as "labels"] ?? {};
          const expected = template.operation === "remove" ? undefined : annotations[String(template.path)];
          const value = (await found)?.value;
          assert.deepEqual(value === undefined ? undefined : String(value), expected);
        }
      });
    }
  }
});
