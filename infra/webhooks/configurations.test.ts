import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { findClusterSetup } from "#lib/core/endpoint.ts";
import type { AdmissionRequest, UserInfo } from "#lib/review.ts";
import { type NativePolicy, type RequestMatch, rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { buildConfigOfEveryRule } from "../../test/every-rule.ts";
import { readRows } from "../../test/rows.ts";
import { type CatalogueRule, readCatalogue } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import { parseConfig } from "../project/project.ts";
import { buildEndpointConfig } from "../project/served.ts";
import { evaluateMatchCondition } from "../testing/cel-condition.ts";
import {
  buildWebhookConfigurations,
  callThroughRelay,
  describeWaits,
  type WebhookConfigurationOptions,
  type WebhookEntry,
} from "./configurations.ts";
import { joinCelExpressionLines } from "./entry.ts";
import { instanceLabel } from "./labels.ts";

const pods = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE", "UPDATE"] }] as const;
const namespaces = [{ ...pods[0], resources: ["namespaces"] }] as const;

/** The only rule with `guards`. Hardening makes it fail closed. */
const guard = "second";
const catalogue = [
  toCatalogueRule(
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
  toCatalogueRule(
    guard,
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
  toCatalogueRule("third", rule({ summary: "Third.", match: pods, mutate() {} })),
];

/** `ruleSection` is postern.yaml's section of `second`, a security rule. `harden` makes security rules fail closed. */
type GuardEntryRow = [title: string, ruleSection: object, harden: boolean];
const rows = readRows<{
  expected: object[];
  failurePolicies: [...GuardEntryRow, policy: string][];
  selectors: [...GuardEntryRow, matchExpressions?: object[]][];
  users: [exempt: object, user: UserInfo, isExempt: boolean][]; // `exempt` of a rule in postern.yaml
  slow: [name: string, timeouts: Record<string, RuleWithTimeout>, message?: string][];
}>(import.meta.filename);

/** A rule that mutates, or that only `validates`. It has one entry, or one for each of its `variants` or `policies`. */
type RuleWithTimeout = [
  timeoutSeconds: number,
  matchName: string, // a key of `matches`
  more?: { variants?: string[]; policies?: string[]; validates?: boolean },
];

const registration: WebhookConfigurationOptions = {
  name: "postern",
  address: (name, phase) => `https://host/local.key/${name}/${phase}`,
  harden: false, // If true, entries of rules with `guards` have failurePolicy Fail.
};

const buildFor = (yaml: string, change: Partial<WebhookConfigurationOptions> = {}, rules = catalogue) => {
  const cluster = parseConfig(yaml, rules).clusters.get("local");
  assert.ok(cluster);
  return buildWebhookConfigurations(rules, cluster, { ...registration, ...change });
};
const all = "rules: { first: , second: , third: }";
/** Builds entries, by keys such as `Mutating first.postern.dev`. */
const buildEntries = (yaml: string, change: Partial<WebhookConfigurationOptions> = {}): Record<string, WebhookEntry> =>
  Object.fromEntries(
    buildFor(yaml, change).flatMap(({ kind, webhooks }) =>
      webhooks.map((webhook) => [`${kind.slice(0, -"WebhookConfiguration".length)} ${webhook.name}`, webhook]),
    ),
  );
const buildGuardEntry = (section: string, change: Partial<WebhookConfigurationOptions> = {}) => {
  const entry = buildEntries(`rules: { ${guard}: ${section} }`, change)[`Validating ${guard}.postern.dev`];
  assert.ok(entry);
  return entry;
};

describe("the configurations", () => {
  it("there is a mutating and a validating configuration, with entries in the order of the catalogue", () => {
    assert.deepEqual(buildFor(all), rows.expected);
  });

  it("the webhook configurations have the given name, also as a label", () =>
    assert.deepEqual(
      buildFor(all, { name: "other" }).map(({ metadata }) => [metadata.name, metadata.labels[instanceLabel]]),
      [
        ["other", "other"],
        ["other", "other"],
      ],
    ));
  it("a configuration without entries is built, too, to delete the entries of rules that are off", () =>
    assert.deepEqual(
      buildFor("rules: { third: }").map(({ kind, webhooks }) => [kind, webhooks.length]),
      [
        ["MutatingWebhookConfiguration", 1],
        ["ValidatingWebhookConfiguration", 0],
      ],
    ));
  it("the webhook configurations leave out rules that are off", () =>
    assert.deepEqual(
      buildFor("rules: { third: { mode: off } }").map(({ webhooks }) => webhooks),
      [[], []],
    ));
  it("webhook entries have a CA only if the caller gives a CA", () => {
    const pem = "-----BEGIN CERTIFICATE-----\n";
    for (const { clientConfig } of Object.values(buildEntries(all, { ca: pem })))
      assert.equal(clientConfig.caBundle, Buffer.from(pem).toString("base64"));
    for (const { clientConfig } of Object.values(buildEntries(all))) assert.ok(!("caBundle" in clientConfig));
  });
  it("entries call a relay by its Service, without a key, and exempt the relay's namespace", () => {
    const service = "service: { name: 'relays/one:8443', ca: one.crt }";
    const exempt = "exempt: { namespaces: [a, relays] }";
    const yaml = `rules: { first: , second: { ${exempt} } }\nclusters: { local: { ${service} } }`;
    const configurations = buildFor(yaml, { ca: "of the URL", relayCa: "of the relay", harden: true });
    const entries = configurations.map(callThroughRelay).flatMap(({ webhooks }) => webhooks);
    const relay = { namespace: "relays", name: "one", port: 8443 };
    assert.deepEqual(
      entries.map(({ clientConfig }) => clientConfig),
      ["first/mutate", "first/validate", "second/validate"].map((path) => ({
        service: { ...relay, path: `/${path}` },
        caBundle: Buffer.from("of the relay").toString("base64"),
      })),
    );
    const exempted = entries.map(({ namespaceSelector }) => namespaceSelector?.matchExpressions?.at(-1)?.values);
    assert.deepEqual(exempted, [["relays"], ["relays"], ["a", "relays"]]);
  });
  it("the webhook configurations match as the settings in postern.yaml say", () =>
    assert.deepEqual(buildGuardEntry("{ settings: { kind: services } }").rules[0]?.resources, ["services"]));
  it("the webhook configurations have the timeout of postern.yaml", () =>
    assert.equal(buildGuardEntry("{ timeoutSeconds: 9 }").timeoutSeconds, 9));
  it("a rule whose match selects no requests is refused", () => {
    assert.throws(
      () =>
        buildFor("rules: { none: }", {}, [
          toCatalogueRule("none", rule({ summary: "None.", match: { mutate: pods }, validate() {} })),
        ]),
      { message: "functions/none/rule.ts has a validate function, but its match selects no requests for it" },
    );
  });
});

describe("an entry", () => {
  for (const [name, section, harden, policy] of rows.failurePolicies)
    it(name, () => assert.equal(buildGuardEntry(JSON.stringify(section), { harden }).failurePolicy, policy));
  it("a webhook entry of a rule that is no guard fails open, even if it is hardened", () => {
    for (const [name, { failurePolicy }] of Object.entries(buildEntries(all, { harden: true })))
      assert.equal(failurePolicy, name.includes(guard) ? "Fail" : "Ignore", name);
  });
});

describe("an exemption", () => {
  // A hardened entry fails closed. It then exempts the namespaces that a cluster needs to repair itself.
  for (const [name, section, harden, matchExpressions] of rows.selectors)
    it(name, () =>
      assert.deepEqual(buildGuardEntry(JSON.stringify(section), { harden }).namespaceSelector, {
        matchLabels: { team: "a" },
        ...(matchExpressions && { matchExpressions }),
      }),
    );

  it("an exemption by labels is refused for a rule that matches namespaces", () => {
    assert.throws(
      () => buildEntries("rules: { first: { exempt: { namespaceLabels: { a: b } } } }"),
      (error) =>
        error instanceof Complaint &&
        /^rules\.first\.exempt\.namespaceLabels would let every user with the right to label a namespace exempt it/.test(
          error.message,
        ),
    );
  });

  const isExempt = (exempt: object, userInfo: UserInfo) => {
    const yaml = JSON.stringify({ rules: { third: { exempt } } });
    const conditions = buildEntries(yaml)["Mutating third.postern.dev"]?.matchConditions ?? [];
    // These conditions read only the request's user.
    const request = { userInfo, object: {} } as AdmissionRequest;
    return !conditions.every(({ expression }) => evaluateMatchCondition(expression, request));
  };
  for (const [exempt, user, expected] of rows.users)
    it(`of ${JSON.stringify(exempt)} ${expected ? "covers" : "does not cover"} ${JSON.stringify(user)}`, () =>
      assert.equal(isExempt(exempt, user), expected));

  it("an exemption with an end is not in the entry", () => {
    const exceptions = [{ namespaces: ["legacy"], users: ["e"], until: "2027-01-31", owner: "o", reason: "r" }];
    assert.deepEqual(
      buildGuardEntry(JSON.stringify({ exempt: { users: ["u"], exceptions } })),
      buildGuardEntry(JSON.stringify({ exempt: { users: ["u"] } })),
    );
  });

  it("the conditions of exemptions come before the rule's own conditions; each condition is one line", () => {
    const { matchConditions = [] } = buildGuardEntry(`{ exempt: { users: [${JSON.stringify("a\nb")}], groups: [g] } }`);
    assert.deepEqual(
      matchConditions.map(({ name }) => name),
      ["postern.dev/user-is-not-exempt", "postern.dev/groups-are-not-exempt", "allowed", "lines"],
    );
    for (const { expression } of matchConditions) assert.doesNotMatch(expression, /[\n\r\u2028\u2029]/);
  });
});

describe("a CEL expression that is put on one line", () => {
  it("a CEL expression that is put on one line keeps the spaces in its strings", () =>
    assert.equal(joinCelExpressionLines('  a == "b   c"\n    || b\n'), 'a == "b   c" || b'));
  for (const text of ["a // why\n|| b", 'a == """x\n  y"""'])
    it(`keeps its line breaks if they have a meaning: ${JSON.stringify(text)}`, () =>
      assert.equal(joinCelExpressionLines(text), text));
});

describe("webhook entries", () => {
  const matches: Record<string, readonly RequestMatch[]> = {
    pods,
    namespaces,
    everything: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"] }],
    subresources: [{ ...pods[0], resources: ["pods/*"] }],
    scales: [{ ...pods[0], resources: ["*/scale"] }],
    statuses: [{ ...pods[0], resources: ["*/status"] }],
    deletions: [{ ...pods[0], operations: ["DELETE"] }],
    metrics: [{ ...pods[0], apiGroups: ["metrics.k8s.io"] }],
    bindings: [{ ...pods[0], resources: ["pods/binding"] }],
    leases: [{ ...pods[0], apiGroups: ["coordination.k8s.io"], resources: ["leases"], operations: ["UPDATE"] }],
    podStatuses: [{ ...pods[0], resources: ["pods/status"] }],
  };
  const createRuleWithTimeout = ([
    name,
    [timeoutSeconds, matchName, { variants = [], policies = [], validates = false } = {}],
  ]: [string, RuleWithTimeout]) => {
    const object = { apiVersion: "v1", kind: "MutatingAdmissionPolicy", metadata: { name }, spec: {} };
    // The cast is safe: only the kind of the policy is read.
    const native = { policy: object, bindings: [], findExpressionFault: () => undefined } as unknown as NativePolicy;
    const entries = [...variants.map((name) => ({ name })), ...policies.map((name) => ({ name, native }))];
    return toCatalogueRule(
      name,
      rule({
        summary: "Slow.",
        match: matches[matchName] ?? [],
        timeoutSeconds,
        ...(validates ? { validate() {} } : { mutate() {} }),
        ...(entries.length > 0 && { variants: entries }),
      }),
    );
  };
  const register = (...rules: CatalogueRule[]) =>
    buildFor(`rules: { ${rules.map(({ name }) => `${name}: `).join(", ")} }`, {}, rules);

  for (const [name, timeouts, message] of rows.slow)
    it(`for ${name} are ${message ? "refused by name: a request could wait too long" : "accepted"}`, () => {
      const rules = Object.entries(timeouts).map(createRuleWithTimeout);
      if (message === undefined) assert.equal(register(...rules).length, 2);
      else
        assert.throws(
          () => register(...rules),
          (error) =>
            error instanceof Complaint &&
            error.message.startsWith(`${message}, more than the `) &&
            error.message.split("\n").length === 1,
        );
    });

  it("the warning about long waits names groups, which shorten the wait as much as the warning says", async () => {
    const all = await readCatalogue();
    const config = Object.entries(buildConfigOfEveryRule(all.map(({ name }) => name)));
    const withoutTimeouts = config.map(([name, section]) => [name, { ...section, timeoutSeconds: undefined }] as const);
    const listSlow = (config: object) => {
      const slow: string[] = [];
      buildFor(JSON.stringify(config), { warnOfLongWait: (sentence) => slow.push(sentence) }, all);
      return slow;
    };
    const pattern =
      /^a CREATE of pods could wait (\d+) s for \d+ entries, more than the 20 s that are safe; groups: (\{.*\}) in postern.yaml shortens that (enough|to (\d+) s)/;
    for (const sections of [config, withoutTimeouts, withoutTimeouts.slice(0, 30)]) {
      const rules = Object.fromEntries(sections);
      const [sentence = "", ...others] = listSlow({ rules });
      assert.deepEqual(others, []);
      const [, before, groups = "", , after] = pattern.exec(sentence) ?? [];
      assert.ok(after === undefined || Number(after) < Number(before), sentence);
      const [still, ...more] = listSlow({ rules, groups: parse(groups) });
      assert.deepEqual(more, []);
      assert.equal(/could wait (\d+) s/.exec(still ?? "")?.[1], after, sentence);
    }
  });

  it("entries that could wait too long for a vital and another resource are refused with two sentences", () => {
    const rules = [createRuleWithTimeout(["a", [5, "leases"]]), createRuleWithTimeout(["b", [21, "pods"]])];
    assert.throws(
      () => register(...rules),
      new Complaint(
        [
          "an UPDATE of leases could wait 5 s for a, more than the 4 s that are safe: leader election gives up after 5 s; shorten some by timeoutSeconds in postern.yaml",
          "a CREATE of pods could wait 21 s for b, more than the 20 s that are safe; shorten some by timeoutSeconds in postern.yaml",
        ].join("\n"),
      ),
    );
  });

  it("the longest waits are described with leases and with the waits of validating entries", () => {
    const rules = [
      createRuleWithTimeout(["a", [3, "everything"]]),
      createRuleWithTimeout(["b", [2, "pods"]]),
      createRuleWithTimeout(["c", [5, "bindings", { validates: true }]]),
    ];
    const yaml = `rules: { ${rules.map(({ name }) => `${name}: `).join(", ")} }`;
    const cluster = parseConfig(yaml, rules).clusters.get("local");
    assert.ok(cluster);
    // Pods wait 3 s for a and 2 s for b, bindings 3 s for a and 5 s for c.
    assert.equal(
      describeWaits(rules, cluster),
      "if endpoints hang, writes wait at most: leases 0 s, pods 5 s, pods/binding 8 s, serviceaccounts/token 3 s, deployments 3 s, configmaps 3 s, namespaces 3 s",
    );
    assert.equal(describeWaits(rules, { ...cluster, rules: new Map() }), undefined);
  });
});

describe("a rule with variants", () => {
  const strict = { matchLabels: { level: "strict" } };
  const createLevelsRule = (names: string[]) =>
    toCatalogueRule(
      "levels",
      rule({
        summary: "Levels.",
        match: { mutate: namespaces, validate: pods },
        matchConditions: { all: "true" },
        guards: true, // a security rule: hardening makes it fail closed
        settings: { levels: names, limit: 1 },
        variants: ({ levels }) =>
          ["strict", "loose", "idle", ...levels].map((name) => ({
            name,
            ...(name === "strict" && { namespaceSelector: strict, timeoutSeconds: 7, settings: { limit: 2 } }),
            ...(name === "loose" && {
              guards: false, // Hardening doesn't change this variant.
              matchConditions: { loosely: "false" },
              match: { validate: pods },
            }),
            ...(name === "idle" && { match: [] }),
          })),
        mutate() {},
        validate() {},
      }),
    );
  const buildVariantEntries = (yaml: string, change: Partial<WebhookConfigurationOptions> = {}, names: string[] = []) =>
    buildFor(yaml, change, [...catalogue, createLevelsRule(names)]).flatMap(({ kind, webhooks }) =>
      webhooks.map((webhook) => ({ kind, ...webhook })),
    );

  it("a rule with variants has an entry with its own address for each variant that matches something", () =>
    assert.deepEqual(
      buildVariantEntries("rules: { first: , levels: }").map(({ kind, name, clientConfig }) => [
        kind[0],
        name,
        clientConfig.url,
      ]),
      [
        ["M", "first.postern.dev", "https://host/local.key/first/mutate"],
        ["M", "strict.levels.postern.dev", "https://host/local.key/levels/mutate/strict"],
        ["V", "first.postern.dev", "https://host/local.key/first/validate"],
        ["V", "strict.levels.postern.dev", "https://host/local.key/levels/validate/strict"],
        ["V", "loose.levels.postern.dev", "https://host/local.key/levels/validate/loose"],
      ],
    ));

  it("a rule with variants has entries that differ only in what the variants set", () => {
    const [strictly, loosely] = buildVariantEntries("rules: { levels: { exempt: { namespaces: [a] } } }", {
      harden: true,
    }).slice(1);
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

  it("a rule with variants has the number of entries that follows from its settings", () => {
    const names = buildVariantEntries("rules: { levels: { settings: { levels: [more] } } }").map(({ name }) => name);
    assert.equal(names.filter((name) => name === "more.levels.postern.dev").length, 2);
  });

  it("a bundle has the names and settings of its rule's variants, also of those that one cluster adds", () => {
    const one = createLevelsRule([]);
    const clusters = "clusters: { a: , b: { rules: { levels: { settings: { levels: [more] } } } } }";
    const config = buildEndpointConfig(parseConfig(`{ rules: { levels: }, ${clusters} }`, [one]), one);
    const usual = { strict: { limit: 2 }, loose: {}, idle: {} };
    assert.deepEqual(
      [config.variants, ...["a", "b"].map((name) => findClusterSetup(config, name)?.variants)],
      [usual, undefined, { ...usual, more: {} }],
    );
  });

  for (const name of ["strict", "mutate", "validate", "Loud", "a.b", "", "-"])
    it(`can't have a variant called "${name}"`, () =>
      assert.throws(
        () => buildVariantEntries("rules: { levels: }", {}, [name]),
        new Complaint(
          `functions/levels/rule.ts has a variant "${name}"; each needs a name of its own of lower-case letters, digits and hyphens, and not mutate or validate`,
        ),
      ));

  it("a rule with variants can't be in a group", () =>
    assert.throws(
      () => parseConfig("{ rules: { levels: }, groups: { g: [levels] } }", [createLevelsRule([])]),
      /"levels" has several entries, and a group has one/,
    ));
});
