import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { findClusterSetup } from "#lib/core/endpoint.ts";
import type { GroupConfig } from "#lib/core/group.ts";
import { matchesRequest, toResourceKey } from "#lib/request-match.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import { type RequestMatch, type Rule, rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { readRows } from "../../test/rows.ts";
import { Complaint } from "../cli/complaint.ts";
import { parseConfig } from "../project/project.ts";
import { buildEndpointConfig, listServedRulesAndGroups } from "../project/served.ts";
import { evaluateMatchCondition } from "../testing/cel-condition.ts";
import { buildWebhookConfigurations, type WebhookEntry } from "./configurations.ts";

const pods: RequestMatch = { apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] };
const services: RequestMatch = { ...pods, resources: ["services"], operations: ["CREATE", "UPDATE"] };
const createMutator = (name: string, change: Partial<Rule> = {}) =>
  toCatalogueRule(name, rule({ summary: "Mutates.", match: [pods], mutate() {}, ...change }));

const catalogue = [
  createMutator("early", { order: 1, matchConditions: { named: 'object.metadata.name == "a"\n  && true' } }),
  createMutator("middle", { order: 2, match: [services], timeoutSeconds: 5, validate() {} }),
  createMutator("late", {
    order: 3,
    settings: { a: 1 },
    matchConditions: { labelled: "has(object.metadata.labels) // so" },
  }),
  createMutator("always", { order: 4 }),
  createMutator("guard", { order: 5, guards: true }), // A guard is a rule that hardening makes fail closed.
  createMutator("exact", { order: 6, matchPolicy: "Exact" }),
  createMutator("writes", { order: 7, sideEffects: "NoneOnDryRun" }),
  createMutator("selects", { order: 8, namespaceSelector: { matchLabels: { a: "b" } } }),
  createMutator("chooses", { order: 9, objectSelector: { matchLabels: { a: "b" } } }),
  createMutator("newer", { order: 10, match: [{ ...pods, apiVersions: ["v2"] }] }),
  createMutator("any", { order: 11, match: [{ ...pods, apiGroups: ["*"], resources: ["*"] }] }),
  createMutator("asks", { order: 12, authorizedBy: { may: "true" } }),
  createMutator("core", { order: 13, match: [{ ...pods, resources: ["*"], operations: ["UPDATE"] }] }),
  createMutator("subs", { order: 14, match: [{ ...pods, resources: ["pods/*"], operations: ["UPDATE"] }] }),
  createMutator("status", { order: 15, match: [{ ...pods, resources: ["pods/status"], operations: ["UPDATE"] }] }),
  createMutator("second-guard", { order: 16, guards: true }),
  createMutator("chosen", {
    order: 17,
    settings: { resources: [] },
    match: ({ resources }: { resources: string[] }) => (resources.length > 0 ? [{ ...pods, resources }] : []),
  }),
  toCatalogueRule("checks", rule({ summary: "Validates.", match: [pods], validate() {} })),
];

const parse = (yaml: string) => parseConfig(yaml, catalogue);
const buildEntries = (yaml: string, { harden = false } = {}): WebhookEntry[] => {
  const cluster = parse(yaml).clusters.get("local");
  assert.ok(cluster);
  const buildAddress = (name: string, phase: string) => `https://host/local.key/${name}/${phase}`;
  return buildWebhookConfigurations(catalogue, cluster, { name: "postern", address: buildAddress, harden }).flatMap(
    ({ webhooks }) => webhooks,
  );
};
const findGroupEntry = (yaml: string, options = {}): WebhookEntry => {
  const found = buildEntries(yaml, options).find(({ name }) => name === "both.postern.dev");
  assert.ok(found);
  return found;
};
const expectComplaint = (yaml: string, pattern: string | RegExp) =>
  assert.throws(
    () => buildEntries(yaml),
    (error) => {
      assert.ok(error instanceof Complaint, String(error));
      if (typeof pattern === "string") assert.equal(error.message, pattern);
      else assert.match(error.message, pattern);
      return true;
    },
  );

describe("a group in postern.yaml", () => {
  const rules = `rules: { ${catalogue.map(({ name }) => `${name}: `).join(", ")} }`;
  /** Each row has the mistake, the groups of postern.yaml, and the error message. */
  const table = readRows<[string, string, string][]>(import.meta.filename);
  for (const [name, groups, sentence] of table)
    it(`${name} is refused`, () => expectComplaint(`${rules}\ngroups:\n  ${groups}`, sentence));

  it("a group with members of different failurePolicies is refused, unless one member only warns", () => {
    const printConfig = (mode: string) =>
      `groups: { both: [early, late] }\nrules: { early: { failurePolicy: Fail, mode: ${mode} }, late: }`;
    expectComplaint(
      printConfig("enforce"),
      'postern.yaml:1 groups.both must agree in failurePolicy: early has "Fail", late has "Ignore"',
    );
    assert.equal(findGroupEntry(printConfig("warn")).failurePolicy, "Ignore");
  });

  it("a group with members that exempt different namespace labels is refused", () => {
    const exempt = (label: string) => `{ exempt: { namespaceLabels: { ${label}: "yes" } } }`;
    const printConfig = (one: string, other: string) =>
      `groups: { both: [early, late] }\nrules: { early: ${exempt(one)}, late: ${exempt(other)} }`;
    expectComplaint(printConfig("a", "b"), /groups.both must agree in exempt.namespaceLabels/);
    assert.deepEqual(findGroupEntry(printConfig("a", "a")).namespaceSelector, {
      matchExpressions: [{ key: "a", operator: "NotIn", values: ["yes"] }],
    });
  });

  it("a group with a member that no cluster turns on is refused", () =>
    expectComplaint(
      "rules: { early: }\ngroups: { both: [early, late] }",
      "postern.yaml:2 groups.both has late, which is not named under rules",
    ));

  it("a group may have members whose entries differ if such a member is off", () => {
    assert.equal(
      findGroupEntry("rules: { early: , exact: { mode: off } }\ngroups: { both: [early, exact] }").matchPolicy,
      "Equivalent",
    );
  });

  it("a group may have members that are recorded and members that are not recorded", () => {
    const rules = "rules: { early: { record: { bucket: reviews } }, late: }";
    assert.equal(findGroupEntry(`${rules}\ngroups: { both: [late, early] }`).sideEffects, "NoneOnDryRun");
    assert.equal(findGroupEntry("rules: { early: , late: }\ngroups: { both: [late, early] }").sideEffects, "None");
  });

  it("a group is served instead of its members, but members that also validate are served, too", () => {
    const config = parse("rules: { late: , middle: , early: , guard: }\ngroups: { both: [late, middle, early] }");
    const served = listServedRulesAndGroups(config, catalogue);
    assert.deepEqual(
      served.map(({ name, members }) => [name, members?.map((member) => member.name)]),
      [
        ["both", ["early", "middle", "late"]],
        ["middle", undefined],
        ["guard", undefined],
      ],
    );
  });

  it("a group has the entry of the other members if one member matches nothing under its settings", () => {
    const yaml = "rules: { early: , chosen: }\ngroups: { both: [early, chosen] }";
    const { rules } = findGroupEntry(yaml);
    assert.deepEqual(rules, [{ ...pods, scope: "*" }]);
    const config = parse(yaml);
    const [group] = listServedRulesAndGroups(config, catalogue);
    assert.ok(group);
    const settings = buildEndpointConfig(config, group).usual?.settings as GroupConfig["alone"] | undefined;
    assert.deepEqual(settings?.chosen?.match, []);
  });

  it("a group has the config of each member in each cluster, and their defaults for unknown clusters", () => {
    const config = parse(`
      rules: { early: { exempt: { users: [u], groups: [g], namespaces: [n], exceptions: [{ users: [e], until: 2027-01-31, owner: o, reason: r }] } }, late: { settings: { a: 2 } } }
      clusters: { one: { rules: { early: { mode: warn } } }, two: { rules: { early: { mode: "off" }, late: { mode: "off" } } } }
      groups: { both: [early, late] }`);
    const [group] = listServedRulesAndGroups(config, catalogue);
    assert.ok(group);
    const failsOpen = true;
    const late = { mode: "enforce", settings: { a: 2 }, match: [pods], failsOpen, exempt: {} };
    const buildOffMember = (settings: object) => ({ mode: "off", settings, match: [], failsOpen, exempt: {} });
    const exceptions = [{ users: ["e"], until: "2027-01-31", owner: "o", reason: "r" }];
    const exempt = { users: ["u"], groups: ["g"], namespaces: ["n"], exceptions };
    const usualEarly = { mode: "enforce", settings: {}, match: [pods], failsOpen, exempt };
    assert.deepEqual(buildEndpointConfig(config, group), {
      rule: "both",
      usual: { keyVersions: [1], mode: "enforce", settings: { early: usualEarly, late } },
      clusters: {
        one: {
          keyVersions: [1],
          mode: "enforce",
          settings: { early: { mode: "warn", settings: {}, match: [pods], failsOpen, exempt }, late },
        },
        two: { keyVersions: [1], mode: "off", settings: { early: buildOffMember({}), late: buildOffMember({ a: 2 }) } },
      },
      alone: {
        early: { mode: "enforce", settings: {}, match: [pods], failsOpen, exempt: {} },
        late: { ...late, settings: { a: 1 } },
      },
    });
  });
});

describe("a group's entry", () => {
  const printGroup = (...names: string[]) => `groups: { both: [${names.join(", ")}] }\n`;

  it("a group's entry is where its first active member would be; validating entries don't move", () => {
    const yaml = `rules: { always: , early: { mode: "off" }, middle: , late: }\n${printGroup("early", "middle", "late")}`;
    assert.deepEqual(
      buildEntries(yaml).map(({ name, clientConfig }) => [name, clientConfig.url]),
      [
        ["both.postern.dev", "https://host/local.key/both/mutate"],
        ["always.postern.dev", "https://host/local.key/always/mutate"],
        ["middle.postern.dev", "https://host/local.key/middle/validate"],
      ],
    );
  });

  it("a group's entry is left out if all members are off", () =>
    assert.deepEqual(
      buildEntries(`rules: { early: { mode: "off" }, late: { mode: "off" } }\n${printGroup("early", "late")}`),
      [],
    ));

  it("a group's entry matches what any member matches, and has the longest timeout and one condition", () => {
    const entry = findGroupEntry(`rules: { early: , middle: , late: }\n${printGroup("early", "middle", "late")}`);
    assert.deepEqual(entry.rules, [
      { scope: "*", ...pods },
      { scope: "*", ...services },
    ]);
    assert.deepEqual([entry.timeoutSeconds, entry.reinvocationPolicy], [5, "IfNeeded"]);
    const [condition, ...others] = entry.matchConditions ?? [];
    assert.deepEqual([condition?.name, others], ["concerns-a-member", []]);
    const isCalled = (resource: string, object: object, operation = "CREATE") =>
      evaluateMatchCondition(String(condition?.expression), {
        resource: { group: "", version: "v1", resource },
        operation,
        object,
      } as unknown as AdmissionRequest);
    assert.equal(isCalled("pods", { metadata: { name: "a" } }), true);
    assert.equal(isCalled("pods", { metadata: { name: "b", labels: {} } }), true);
    assert.equal(isCalled("pods", { metadata: { name: "b" } }), false);
    assert.equal(isCalled("services", { metadata: {} }), true);
    assert.equal(isCalled("services", { metadata: {} }, "UPDATE"), true);
    assert.equal(isCalled("services", { metadata: { name: "a" } }, "DELETE"), false);
  });

  it("a group's entry has no condition if a member has no condition", () => {
    assert.equal(
      findGroupEntry(`rules: { early: , always: }\n${printGroup("early", "always")}`).matchConditions,
      undefined,
    );
  });

  it("a group's entry is called for a vital resource only if a member's match names the resource", () => {
    /** Returns for each path the members for which the entry is called. */
    const findCalls = (...members: string[]) => {
      const yaml = `rules: { ${members.map((name) => `${name}: `).join(", ")} }\n${printGroup(...members)}`;
      const { rules, matchConditions = [] } = findGroupEntry(yaml);
      const config = parse(yaml);
      const [group] = listServedRulesAndGroups(config, catalogue);
      assert.ok(group);
      const memberships = findClusterSetup(buildEndpointConfig(config, group), "local")
        ?.settings as GroupConfig["alone"];
      return ["configmaps", "events", "pods/status", "pods/scale"].map((path) => {
        const [resource = "", subResource] = path.split("/");
        const request = {
          resource: { group: "", version: "v1", resource },
          ...(subResource && { subResource }),
          operation: "UPDATE",
          object: {},
          userInfo: {},
        } as unknown as AdmissionRequest;
        const isMatched = rules.some((row) => matchesRequest(row, request));
        const isCalled =
          isMatched && matchConditions.every(({ expression }) => evaluateMatchCondition(expression, request));
        const matchingMembers = members.filter((name) => {
          const { match, exempt } = memberships[name] ?? { match: [], exempt: {} };
          const isExempt = exempt.resources?.includes(toResourceKey("", path)) ?? false;
          return !isExempt && match.some((row) => matchesRequest(row, request));
        });
        assert.ok(isCalled || matchingMembers.length === 0, `${path} must be sent to ${matchingMembers}`);
        return isCalled ? matchingMembers : "isn't called";
      });
    };
    assert.deepEqual(findCalls("core", "subs"), [["core"], "isn't called", "isn't called", ["subs"]]);
    assert.deepEqual(findCalls("core", "status"), [["core"], "isn't called", ["status"], "isn't called"]);
    assert.deepEqual(findCalls("subs", "status"), ["isn't called", "isn't called", ["status"], ["subs"]]);
  });

  it("a group's entry exempts namespaces that all members exempt by its selector, and others by its conditions", () => {
    const exempt = (namespaces: string, users: string) =>
      `{ exempt: { namespaces: [${namespaces}], users: [${users}] } }`;
    const entry = findGroupEntry(
      `rules: { early: ${exempt("a, b", "u")}, always: ${exempt("b, c", "v")} }
      ${printGroup("early", "always").trim()}`.replace(/\n\s+/, "\n"),
    );
    assert.deepEqual(entry.namespaceSelector, {
      matchExpressions: [{ key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["b"] }],
    });
    const isCalled = (namespace: string, username: string, name: string) =>
      evaluateMatchCondition(String(entry.matchConditions?.[0]?.expression), {
        resource: { group: "", version: "v1", resource: "pods" },
        operation: "CREATE",
        namespace,
        userInfo: { username },
        object: { metadata: { name } },
      } as unknown as AdmissionRequest);
    assert.equal(isCalled("a", "u", "a"), true, "the second member must be called");
    assert.equal(isCalled("c", "w", "a"), true, "the first member must be called");
    assert.equal(
      isCalled("c", "w", "b"),
      false,
      "the first member's condition is false, the second member exempts the namespace",
    );
    assert.equal(
      isCalled("d", "v", "b"),
      false,
      "the first member's condition is false, the second member exempts the user",
    );
    assert.equal(isCalled("d", "v", "a"), true);
  });

  it("a group's entry that fails closed exempts the vital namespaces, unless an enforcing member sets others", () => {
    const fail = "{ failurePolicy: Fail }";
    const yaml = `rules: { early: ${fail}, late: ${fail}, always: { mode: warn } }\n${printGroup("early", "late", "always")}`;
    assert.equal(findGroupEntry(yaml).failurePolicy, "Fail");
    const vital = { key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["kube-system", "kube-node-lease"] };
    assert.deepEqual(findGroupEntry(yaml).namespaceSelector, { matchExpressions: [vital] });
  });

  it("a group is hardened only if all members guard, with the same exempt namespaces", () => {
    const printConfig = (early: string) => `rules: { early: ${early}, guard: }\n${printGroup("early", "guard")}`;
    assert.equal(findGroupEntry(printConfig("")).failurePolicy, "Ignore");
    const expectRefusal = (early: string, pattern: RegExp) =>
      assert.throws(() => findGroupEntry(printConfig(early), { harden: true }), pattern);
    const twoGroups = `rules: { early: , guard: , always: , late: , second-guard: , subs: }
groups: { both: [early, guard, always, late], other: [second-guard, subs] }`;
    assert.throws(
      () => buildEntries(twoGroups, { harden: true }),
      new Complaint(
        'groups.both must agree in failurePolicy: early, late, always have "Ignore", guard has "Fail"\n' +
          'groups.other must agree in failurePolicy: subs has "Ignore", second-guard has "Fail"',
      ),
    );
    expectRefusal("", /groups.both must agree in failurePolicy: early has "Ignore", guard has "Fail"/);
    expectComplaint(printConfig("{ failurePolicy: Fail }"), /must agree in failurePolicy/);
    const explicit = `rules: { early: { failurePolicy: Fail, exempt: { namespaces: [a] } }, guard: { failurePolicy: Fail } }\n${printGroup("early", "guard")}`;
    assert.throws(
      () => findGroupEntry(explicit, { harden: true }),
      /groups.both must agree in exempt.namespaces where it fails closed/,
    );
  });

  it("the timeout of a group's entry counts once for the time that a request may wait", () => {
    const createSlowRule = (name: string) => createMutator(name, { timeoutSeconds: 15 });
    const rules = [createSlowRule("a"), createSlowRule("b")];
    const buildFor = (printConfig: string) => {
      const cluster = parseConfig(printConfig, rules).clusters.get("local");
      assert.ok(cluster);
      return buildWebhookConfigurations(rules, cluster, {
        name: "postern",
        address: () => "https://host",
        harden: false,
      });
    };
    assert.throws(
      () => buildFor("rules: { a: , b: }"),
      /could wait 30 s for a, b, .*; groups: \{ mutators: \[a, b\] \} in postern.yaml/,
    );
    assert.equal(buildFor("rules: { a: , b: }\ngroups: { both: [a, b] }")[0]?.webhooks.length, 1);
  });
});
