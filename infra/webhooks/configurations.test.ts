import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AdmissionRequest, UserInfo } from "#lib/review.ts";
import { listPhases, type Rule, rule } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import { parseConfig } from "../project/read.ts";
import { buildEndpointConfig } from "../project/served.ts";
import { condition } from "../testing/cel.ts";
import { configurations, type Registration, type Webhook } from "./configurations.ts";
import { oneLine } from "./entry.ts";

const listed = (name: string, one: Rule): CatalogueRule => ({ name, folder: "", phases: listPhases(one), rule: one });
const pods = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }] as const;
const namespaces = [{ ...pods[0], resources: ["namespaces"] }] as const;

const catalogue = [
  listed(
    "first",
    rule({
      summary: "First.",
      order: 1,
      match: { mutate: pods, validate: namespaces },
      matchConditions: { mutate: { m: "true" }, validate: { v: "false" } },
      mutate() {},
      validate() {},
    }),
  ),
  listed(
    "second",
    rule({
      summary: "Second.",
      match: ({ kind }) => [{ ...pods[0], resources: [kind] }],
      settings: { kind: "pods" },
      guards: true,
      matchPolicy: "Exact",
      sideEffects: "NoneOnDryRun",
      timeoutSeconds: 5,
      namespaceSelector: { matchLabels: { team: "a" } },
      objectSelector: { matchExpressions: [{ key: "b", operator: "Exists" }] },
      authorizedBy: { allowed: "authorizer.\n      group('').allowed()" },
      matchConditions: { lines: "object.a == 'b'\n    && true" },
      validate() {},
    }),
  ),
  listed("third", rule({ summary: "Third.", match: pods, mutate() {} })),
];

const registration: Registration = {
  name: "postern",
  address: (name, phase) => `https://host/local.key/${name}/${phase}`,
  harden: false,
};

const made = (yaml: string, change: Partial<Registration> = {}, rules = catalogue) => {
  const cluster = parseConfig(yaml, rules).clusters.get("local");
  assert.ok(cluster);
  return configurations(rules, cluster, { ...registration, ...change });
};
const all = "rules: { first: , second: , third: }";
const entries = (yaml: string, change: Partial<Registration> = {}): Record<string, Webhook> =>
  Object.fromEntries(
    made(yaml, change).flatMap(({ kind, webhooks }) =>
      webhooks.map((webhook) => [`${kind.slice(0, -"ingWebhookConfiguration".length)} ${webhook.name}`, webhook]),
    ),
  );
const second = (said: string, change: Partial<Registration> = {}) => {
  const entry = entries(`rules: { second: ${said} }`, change)["Validat second.postern.dev"];
  assert.ok(entry);
  return entry;
};

const plain: Omit<Webhook, "name" | "clientConfig" | "rules"> = {
  failurePolicy: "Ignore",
  matchPolicy: "Equivalent",
  sideEffects: "None",
  timeoutSeconds: 3,
  admissionReviewVersions: ["v1", "v1beta1"],
};

describe("the configurations", () => {
  it("are two, with entries in the order of the catalogue, each rule in its phases", () => {
    assert.deepEqual(made(all), [
      {
        apiVersion: "admissionregistration.k8s.io/v1",
        kind: "MutatingWebhookConfiguration",
        metadata: { name: "postern", labels: { "app.kubernetes.io/managed-by": "postern" } },
        webhooks: [
          {
            ...plain,
            name: "first.postern.dev",
            clientConfig: { url: "https://host/local.key/first/mutate" },
            rules: [{ ...pods[0], scope: "*" }],
            matchConditions: [{ name: "m", expression: "true" }],
            reinvocationPolicy: "IfNeeded",
          },
          {
            ...plain,
            name: "third.postern.dev",
            clientConfig: { url: "https://host/local.key/third/mutate" },
            rules: [{ ...pods[0], scope: "*" }],
            reinvocationPolicy: "IfNeeded",
          },
        ],
      },
      {
        apiVersion: "admissionregistration.k8s.io/v1",
        kind: "ValidatingWebhookConfiguration",
        metadata: { name: "postern", labels: { "app.kubernetes.io/managed-by": "postern" } },
        webhooks: [
          {
            ...plain,
            name: "first.postern.dev",
            clientConfig: { url: "https://host/local.key/first/validate" },
            rules: [{ ...namespaces[0], scope: "*" }],
            matchConditions: [{ name: "v", expression: "false" }],
          },
          {
            ...plain,
            name: "second.postern.dev",
            clientConfig: { url: "https://host/local.key/second/validate" },
            rules: [{ ...pods[0], scope: "*" }],
            matchPolicy: "Exact",
            sideEffects: "NoneOnDryRun",
            timeoutSeconds: 5,
            namespaceSelector: { matchLabels: { team: "a" } },
            objectSelector: { matchExpressions: [{ key: "b", operator: "Exists" }] },
            matchConditions: [
              { name: "allowed", expression: "authorizer. group('').allowed()" },
              { name: "lines", expression: "object.a == 'b' && true" },
            ],
          },
        ],
      },
    ]);
  });

  it("have the name that is asked for", () =>
    assert.deepEqual(
      made(all, { name: "other" }).map(({ metadata }) => metadata.name),
      ["other", "other"],
    ));
  it("are left out where they would be empty", () =>
    assert.deepEqual(
      made("rules: { third: }").map(({ kind }) => kind),
      ["MutatingWebhookConfiguration"],
    ));
  it("leave out rules that are off", () => assert.deepEqual(made("rules: { third: { mode: off } }"), []));
  it("hold a CA only where one is given", () => {
    const pem = "-----BEGIN CERTIFICATE-----\n";
    for (const { clientConfig } of Object.values(entries(all, { ca: pem })))
      assert.equal(clientConfig.caBundle, Buffer.from(pem).toString("base64"));
    for (const { clientConfig } of Object.values(entries(all))) assert.ok(!("caBundle" in clientConfig));
  });
  it("match by the settings of postern.yaml", () =>
    assert.deepEqual(second("{ settings: { kind: services } }").rules[0]?.resources, ["services"]));
  it("wait as long as postern.yaml says", () => assert.equal(second("{ timeoutSeconds: 9 }").timeoutSeconds, 9));
  it("refuse a rule that matches nothing", () => {
    assert.throws(
      () =>
        made("rules: { none: }", {}, [
          listed("none", rule({ summary: "None.", match: { mutate: pods }, validate() {} })),
        ]),
      { message: "functions/none/rule.ts matches nothing to validate" },
    );
  });
});

describe("an entry fails", () => {
  const table: [string, string, boolean, "Fail" | "Ignore"][] = [
    ["open, though it guards", "{}", false, "Ignore"],
    ["closed where it guards and is hardened", "{}", true, "Fail"],
    ["closed where postern.yaml says so", "{ failurePolicy: Fail }", false, "Fail"],
    ["open where postern.yaml says so, even hardened", "{ failurePolicy: Ignore }", true, "Ignore"],
    ["open in mode warn", "{ mode: warn, failurePolicy: Fail }", true, "Ignore"],
    ["open in mode audit", "{ mode: audit, failurePolicy: Fail }", true, "Ignore"],
  ];
  for (const [name, said, harden, policy] of table)
    it(name, () => assert.equal(second(said, { harden }).failurePolicy, policy));
  it("open where it doesn't guard, even hardened", () => {
    for (const [name, { failurePolicy }] of Object.entries(entries(all, { harden: true })))
      assert.equal(failurePolicy, name.includes("second") ? "Fail" : "Ignore", name);
  });
});

describe("an exemption", () => {
  const notIn = (key: string, ...values: string[]) => ({ key, operator: "NotIn", values });
  const vital = notIn("kubernetes.io/metadata.name", "kube-system", "kube-node-lease");
  const own = { matchLabels: { team: "a" } };
  const selectors: [string, string, boolean, object][] = [
    [
      "spares what the cluster needs to heal from an entry that fails closed",
      "{}",
      true,
      { ...own, matchExpressions: [vital] },
    ],
    [
      "spares it also where users are exempt",
      "{ failurePolicy: Fail, exempt: { users: [a] } }",
      false,
      { ...own, matchExpressions: [vital] },
    ],
    ["does not spare it where the entry fails open", "{}", false, own],
    ["does not spare it in mode warn", "{ mode: warn }", true, own],
    [
      "spares instead what is written out",
      "{ exempt: { namespaces: [a, b] } }",
      true,
      { ...own, matchExpressions: [notIn("kubernetes.io/metadata.name", "a", "b")] },
    ],
    ["spares nothing where that is written out", "{ exempt: { namespaces: [] } }", true, own],
    [
      "by any label spares a namespace",
      "{ exempt: { namespaceLabels: { a: b, c: d } } }",
      false,
      { ...own, matchExpressions: [notIn("a", "b"), notIn("c", "d")] },
    ],
    [
      "by name or label spares a namespace",
      "{ exempt: { namespaces: [n], namespaceLabels: { a: b } } }",
      false,
      { ...own, matchExpressions: [notIn("kubernetes.io/metadata.name", "n"), notIn("a", "b")] },
    ],
  ];
  for (const [name, said, harden, selector] of selectors)
    it(name, () => assert.deepEqual(second(said, { harden }).namespaceSelector, selector));

  it("by labels is refused for a rule that judges namespaces, whoever set them", () => {
    assert.throws(
      () => entries("rules: { first: { exempt: { namespaceLabels: { a: b } } } }"),
      (error) =>
        error instanceof Complaint &&
        /^rules\.first\.exempt\.namespaceLabels would let whoever labels a namespace exempt it/.test(error.message),
    );
  });

  const called = (said: string, userInfo: UserInfo) => {
    const conditions = entries(`rules: { third: ${said} }`)["Mutat third.postern.dev"]?.matchConditions ?? [];
    // No mutating request is like another; these conditions look at its user alone.
    const request = { userInfo, object: {} } as AdmissionRequest;
    return conditions.every(({ expression }) => condition(expression)(request));
  };
  const hostile = `it's "quoted" \\\\ and \u2028 more`;
  const users: [string, UserInfo, boolean][] = [
    ["{}", { username: "a" }, true],
    ["{ exempt: { users: [a, b] } }", { username: "b" }, false],
    ["{ exempt: { users: [a, b] } }", { username: "ab" }, true],
    ["{ exempt: { users: [a, b] } }", {}, true],
    ["{ exempt: { groups: [g, h] } }", { groups: ["x", "h"] }, false],
    ["{ exempt: { groups: [g, h] } }", { groups: ["x"] }, true],
    ["{ exempt: { groups: [g, h] } }", { groups: [] }, true],
    ["{ exempt: { groups: [g, h] } }", {}, true],
    ["{ exempt: { users: [a], groups: [g] } }", { username: "a", groups: [] }, false],
    ["{ exempt: { users: [a], groups: [g] } }", { username: "b", groups: ["g"] }, false],
    ["{ exempt: { users: [a], groups: [g] } }", { username: "g", groups: ["a"] }, true],
    ["{ exempt: { users: [], groups: [] } }", { username: "a", groups: ["g"] }, true],
    [`{ exempt: { users: [${JSON.stringify(hostile)}] } }`, { username: hostile }, false],
    [`{ exempt: { groups: [${JSON.stringify(hostile)}] } }`, { groups: [hostile] }, false],
  ];
  for (const [said, user, expected] of users)
    it(`of ${said} ${expected ? "does not spare" : "spares"} ${JSON.stringify(user)}`, () =>
      assert.equal(called(said, user), expected));

  it("stands before the rule's own conditions, and each is one line", () => {
    const { matchConditions = [] } = second(`{ exempt: { users: [${JSON.stringify("a\nb")}], groups: [g] } }`);
    assert.deepEqual(
      matchConditions.map(({ name }) => name),
      ["user-is-not-exempt", "groups-are-not-exempt", "allowed", "lines"],
    );
    for (const { expression } of matchConditions) assert.doesNotMatch(expression, /[\n\r\u2028\u2029]/);
  });
});

describe("one line", () => {
  it("leaves texts as they are", () => assert.equal(oneLine('  a == "b   c"\n    || b\n'), 'a == "b   c" || b'));
  for (const text of ["a // why\n|| b", 'a == """x\n  y"""'])
    it(`keeps the lines of ${JSON.stringify(text)}`, () => assert.equal(oneLine(text), text));
});

describe("mutating entries", () => {
  const slow = (
    name: string,
    timeoutSeconds: number,
    match: readonly Parameters<typeof rule>[0]["match"][] | unknown,
  ) =>
    listed(name, rule({ summary: "Slow.", match: match as typeof pods, timeoutSeconds, mutate() {}, validate() {} }));
  const on = (...rules: CatalogueRule[]) =>
    made(`rules: { ${rules.map(({ name }) => `${name}: `).join(", ")} }`, {}, rules);
  const any = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] }];
  const status = [{ ...pods[0], resources: ["pods/*"] }];
  const removal = [{ ...pods[0], operations: ["DELETE"] }];

  const refused: [string, CatalogueRule[], string][] = [
    ["of one resource", [slow("a", 10, pods), slow("b", 11, pods)], "a CREATE of pods could wait 21 s for a, b"],
    [
      "of everything and one resource",
      [slow("a", 10, any), slow("b", 8, namespaces), slow("c", 11, pods)],
      "a CREATE of pods could wait 21 s for a, c",
    ],
    [
      "of a resource with its subresources",
      [slow("a", 10, status), slow("b", 11, pods)],
      "a CREATE of pods could wait 21 s for a, b",
    ],
    [
      "of a subresource that two patterns share",
      [slow("a", 10, status), slow("b", 11, [{ ...pods[0], resources: ["*/status"] }])],
      "a CREATE of pods/status could wait 21 s for a, b",
    ],
    ["of one alone", [slow("a", 21, pods)], "a CREATE of pods could wait 21 s for a"],
  ];
  for (const [name, rules, message] of refused)
    it(`${name} that could wait for more than 20 s together are refused by name`, () => {
      assert.throws(
        () => on(...rules),
        (error) =>
          error instanceof Complaint && error.message.startsWith(`${message}, more than the 20 s that are safe`),
      );
    });

  const taken: [string, CatalogueRule[]][] = [
    ["of 20 s", [slow("a", 10, pods), slow("b", 10, pods)]],
    ["of different resources", [slow("a", 20, pods), slow("b", 20, namespaces)]],
    ["of different operations", [slow("a", 20, pods), slow("b", 20, removal)]],
    ["of different groups", [slow("a", 20, pods), slow("b", 20, [{ ...pods[0], apiGroups: ["metrics.k8s.io"] }])]],
    ["of which one is off", [slow("a", 20, pods), { ...slow("b", 20, pods), phases: ["validate"] }]],
  ];
  for (const [name, rules] of taken) it(`${name} are taken`, () => assert.equal(on(...rules).length, 2));
});

describe("a rule with variants", () => {
  const strict = { matchLabels: { level: "strict" } };
  const levels = (names: string[]) =>
    listed(
      "levels",
      rule({
        summary: "Levels.",
        match: { mutate: namespaces, validate: pods },
        matchConditions: { all: "true" },
        guards: true,
        settings: { levels: names, limit: 1 },
        variants: ({ levels }) =>
          ["strict", "loose", "idle", ...levels].map((name) => ({
            name,
            ...(name === "strict" && { namespaceSelector: strict, timeoutSeconds: 7, settings: { limit: 2 } }),
            ...(name === "loose" && {
              guards: false,
              matchConditions: { loosely: "false" },
              match: { validate: pods },
            }),
            ...(name === "idle" && { match: [] }),
          })),
        mutate() {},
        validate() {},
      }),
    );
  const entriesIn = (yaml: string, change: Partial<Registration> = {}, names: string[] = []) =>
    made(yaml, change, [...catalogue, levels(names)]).flatMap(({ kind, webhooks }) =>
      webhooks.map((webhook) => ({ kind, ...webhook })),
    );

  it("has an entry for each that matches something, with an address of its own, in the rule's place", () =>
    assert.deepEqual(
      entriesIn("rules: { first: , levels: }").map(({ kind, name, clientConfig }) => [kind[0], name, clientConfig.url]),
      [
        ["M", "first.postern.dev", "https://host/local.key/first/mutate"],
        ["M", "strict.levels.postern.dev", "https://host/local.key/levels/mutate/strict"],
        ["V", "first.postern.dev", "https://host/local.key/first/validate"],
        ["V", "strict.levels.postern.dev", "https://host/local.key/levels/validate/strict"],
        ["V", "loose.levels.postern.dev", "https://host/local.key/levels/validate/loose"],
      ],
    ));

  it("says of each what is different, and of all what isn't", () => {
    const [strictly, loosely] = entriesIn("rules: { levels: { exempt: { namespaces: [a] } } }", { harden: true }).slice(
      1,
    );
    const exempt = { matchExpressions: [{ key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["a"] }] };
    assert.deepEqual(strictly?.namespaceSelector, { ...strict, ...exempt });
    assert.deepEqual(loosely?.namespaceSelector, exempt);
    assert.deepEqual(
      [strictly, loosely].map((entry) => [entry?.failurePolicy, entry?.timeoutSeconds, entry?.matchConditions]),
      [
        ["Fail", 7, [{ name: "all", expression: "true" }]],
        ["Ignore", 3, [{ name: "loosely", expression: "false" }]],
      ],
    );
  });

  it("has as many as its settings say", () => {
    const names = entriesIn("rules: { levels: { settings: { levels: [more] } } }").map(({ name }) => name);
    assert.equal(names.filter((name) => name === "more.levels.postern.dev").length, 2);
  });

  it("bakes their names and settings into its bundle, and those of a cluster where they differ", () => {
    const one = levels([]);
    const clusters = "clusters: { a: , b: { rules: { levels: { settings: { levels: [more] } } } } }";
    const share = buildEndpointConfig(parseConfig(`{ rules: { levels: }, ${clusters} }`, [one]), one);
    const usual = { strict: { limit: 2 }, loose: {}, idle: {} };
    assert.deepEqual(
      [share.variants, share.clusters.a?.variants, share.clusters.b?.variants],
      [usual, undefined, { ...usual, more: {} }],
    );
  });

  for (const name of ["strict", "mutate", "validate", "Loud", "a.b", "", "-"])
    it(`can't be called "${name}" once more`, () =>
      assert.throws(
        () => entriesIn("rules: { levels: }", {}, [name]),
        new Complaint(
          `functions/levels/rule.ts has a variant "${name}"; each needs a name of its own of lower-case letters, digits and hyphens, and not mutate or validate`,
        ),
      ));

  it("can't be in a group", () =>
    assert.throws(
      () => parseConfig("{ rules: { levels: }, groups: { g: [levels] } }", [levels([])]),
      /"levels" has several entries, and a group has one/,
    ));
});
