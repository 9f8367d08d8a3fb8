import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import { createUnconnectedCapabilities } from "./capabilities.ts";
import { createCompleteGroupEndpoint } from "./complete-endpoint.ts";
import type { EnforcementMode } from "./decide.ts";
import type { GroupConfig, GroupMemberConfig } from "./group.ts";
import { type AnsweredReviewFacts, formatLogLine } from "./log-line.ts";
import { get } from "./needs.ts";
import type { KubernetesObject } from "./review.ts";
import { type Rule, rule } from "./rule.ts";

const pods = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] as const }];

/** Adds the labels that it saw to a list in the object, which shows the order of evaluations. */
const buildScribe = (name: string): Rule =>
  rule({
    summary: "Writes.",
    match: [],
    mutate(object: KubernetesObject & { seen?: string[] }) {
      if (!object.seen?.includes(name)) object.seen = [...(object.seen ?? []), name];
    },
  });
/** Writes nothing before another has. */
const buildFollower = (name: string, leader: string): Rule =>
  rule({
    summary: "Writes after another.",
    match: [],
    mutate(object: KubernetesObject & { seen?: string[] }) {
      if (object.seen?.includes(leader) && !object.seen.includes(name)) object.seen.push(name);
    },
  });
const refusing: Rule = rule({
  summary: "Refuses.",
  match: [],
  settings: { why: "no" },
  mutate: (_, { settings: { why } }) => ({ refuse: why, warnings: ["beware"], audit: { note: "seen" } }),
});
const failing: Rule = rule({
  summary: "Fails.",
  match: [],
  mutate() {
    throw new Error("broken");
  },
});

const buildMember = (change: Partial<GroupMemberConfig> = {}): GroupMemberConfig => ({
  ...{ mode: "enforce", settings: {}, match: pods, failsOpen: false, exempt: {} },
  ...change,
});

const createGroup = (members: Record<string, Rule>, memberships: Record<string, GroupMemberConfig>) => {
  const reports: AnsweredReviewFacts[] = [];
  const mode: EnforcementMode = "enforce";
  const config: GroupConfig = {
    rule: "together",
    clusters: { one: { keyVersions: [1], mode, settings: memberships } },
    alone: Object.fromEntries(
      Object.entries(members).map(([name, { settings }]) => [name, buildMember({ settings: settings ?? {} })]),
    ),
  };
  const keepReport = (report: AnsweredReviewFacts) => void reports.push(report);
  const handler = createCompleteGroupEndpoint(members, config, {
    publicKeys: "",
    openCapabilities: createUnconnectedCapabilities,
    writeLogLine: keepReport,
  });
  const ask = async (request: object = {}, event: object = { cluster: "one" }) => {
    const review = {
      kind: "AdmissionReview",
      apiVersion: "admission.k8s.io/v1",
      request: {
        uid: "1",
        kind: { group: "", version: "v1", kind: "Pod" },
        resource: { group: "", version: "v1", resource: "pods" },
        operation: "CREATE",
        namespace: "shop",
        userInfo: { username: "jane", groups: ["developers"] },
        object: { metadata: { name: "a" } },
        ...request,
      },
    };
    const answer = (await handler({ phase: "mutate", review, ...event }, {} as Context)) as {
      code?: number;
      message?: string;
      response?: { allowed: boolean; status?: object; patch?: string; warnings?: string[]; auditAnnotations?: object };
    };
    const { patch, ...response } = answer.response ?? {};
    const { code, message } = answer;
    return { code, message, ...response, patch: patch && JSON.parse(Buffer.from(patch, "base64").toString()) };
  };
  return { ask, reports };
};

const nothing = { patch: undefined, warnings: undefined, auditAnnotations: undefined };
const expectAnswer = (answer: object) => ({ ...nothing, ...answer });

describe("a group", () => {
  it("asks its members in their order, each about what those before it made", async () => {
    const { ask } = createGroup({ b: buildScribe("b"), a: buildScribe("a") }, { b: buildMember(), a: buildMember() });
    const { patch } = await ask();
    assert.deepEqual(patch, [
      { op: "add", path: "/seen", value: ["b"] },
      { op: "add", path: "/seen/1", value: "a" },
    ]);
  });

  it("asks those before a change once more, and no third time", async () => {
    const rules = {
      third: buildFollower("third", "second"),
      second: buildFollower("second", "first"),
      first: buildScribe("first"),
    };
    const { ask } = createGroup(rules, { third: buildMember(), second: buildMember(), first: buildMember() });
    const { patch } = await ask();
    // A change in the second round would need a third one.
    assert.deepEqual(patch, [
      { op: "add", path: "/seen", value: ["first"] },
      { op: "add", path: "/seen/1", value: "second" },
    ]);
  });

  it("asks those after what changes then as well", async () => {
    const rules = {
      second: buildFollower("second", "first"),
      first: buildScribe("first"),
      third: buildFollower("third", "second"),
    };
    const { ask } = createGroup(rules, { second: buildMember(), first: buildMember(), third: buildMember() });
    const { patch } = await ask();
    assert.deepEqual(
      patch.map(({ value }: { value: unknown }) => value),
      [["first"], "second", "third"],
    );
  });

  it("refuses with the message of its first refusing member, under that member's name, and asks no member after it", async () => {
    const rules = { a: buildScribe("a"), no: refusing, broken: failing };
    const { ask, reports } = createGroup(rules, {
      a: buildMember(),
      no: buildMember({ settings: { why: "no!" } }),
      broken: buildMember(),
    });
    const { allowed, status, patch, warnings, auditAnnotations } = await ask();
    assert.deepEqual([allowed, patch, warnings], [false, undefined, ["beware"]]);
    assert.deepEqual(status, { code: 403, reason: "Forbidden", message: "no: no!" });
    assert.deepEqual(auditAnnotations, { "no.note": "seen" });
    assert.deepEqual(
      reports.map(({ rule, group, refused, mode }) => [rule, group, refused, mode]),
      [
        ["together", undefined, true, "enforce"],
        ["no", "together", true, "enforce"],
      ],
    );
  });

  it("only tells what a member would do that warns or is audited, and what later ones see is without it", async () => {
    const rules = {
      warns: buildScribe("warns"),
      audits: buildScribe("audits"),
      no: refusing,
      acts: buildScribe("acts"),
    };
    const { ask } = createGroup(rules, {
      warns: buildMember({ mode: "warn" }),
      audits: buildMember({ mode: "audit" }),
      no: buildMember({ mode: "warn", settings: { why: "no" } }),
      acts: buildMember(),
    });
    const answer = await ask();
    assert.deepEqual(answer.patch, [{ op: "add", path: "/seen", value: ["acts"] }]);
    assert.deepEqual(answer.warnings, ["warns would change: /seen", "no would deny: no", "beware"]);
    assert.deepEqual(answer.auditAnnotations, { "audits.would-change": "/seen", "no.note": "seen" });
  });

  const unconcerned: [string, Partial<GroupMemberConfig>, object][] = [
    ["that is off", { mode: "off" }, {}],
    ["that matches another resource", { match: [{ ...pods[0], resources: ["services"] } as never] }, {}],
    ["that matches another operation", { match: [{ ...pods[0], operations: ["UPDATE"] } as never] }, {}],
    ["whose exemption has the namespace", { exempt: { namespaces: ["a", "shop"] } }, {}],
    ["whose exemption has the user", { exempt: { users: ["jane"] } }, {}],
    ["whose exemption has one of the user's groups", { exempt: { groups: ["developers"] } }, {}],
    ["for an object without a namespace, which its namespaces don't exempt", {}, { namespace: undefined }],
  ];
  for (const [name, change, request] of unconcerned) {
    const isAsked = name.startsWith("for");
    it(`${isAsked ? "asks a member" : "doesn't ask a member"} ${name}`, async () => {
      const memberships = { one: buildMember(), other: buildMember({ exempt: { namespaces: ["shop"] }, ...change }) };
      const { ask } = createGroup({ one: buildScribe("one"), other: buildScribe("other") }, memberships);
      const { patch } = await ask(request);
      assert.deepEqual(patch.length, isAsked ? 2 : 1);
    });
  }

  it("admits without a change if no member is concerned", async () => {
    const { ask } = createGroup({ a: buildScribe("a") }, { a: buildMember({ exempt: { users: ["jane"] } }) });
    assert.deepEqual(expectAnswer(await ask()), {
      ...nothing,
      uid: "1",
      allowed: true,
      code: undefined,
      message: undefined,
    });
  });

  it("fails as a whole where a member that is enforced fails, and says which", async () => {
    const { ask } = createGroup({ a: buildScribe("a"), broken: failing }, { a: buildMember(), broken: buildMember() });
    const { code, message } = await ask();
    assert.deepEqual([code, message], [500, "broken: the rule failed: Error: broken"]);
  });

  for (const mode of ["enforce", "warn"] as const)
    it(`goes on where one fails that would fail open alone, in mode ${mode}, and journals it`, async () => {
      const { ask, reports } = createGroup(
        { broken: failing, a: buildScribe("a") },
        { broken: buildMember({ mode, failsOpen: true }), a: buildMember() },
      );
      const { allowed, patch } = await ask();
      assert.deepEqual([allowed, patch.length], [true, 1]);
      const [, own] = reports;
      assert.deepEqual([own?.rule, own?.code, own?.mode], ["broken", 500, mode]);
      assert.match(own?.error?.message ?? "", /^broken: the rule failed: Error: broken$/);
    });

  it("counts each review and each denial once over its lines", async () => {
    const { ask, reports } = createGroup(
      { warns: refusing, no: refusing },
      { warns: buildMember({ mode: "warn", settings: { why: "hm" } }), no: buildMember({ settings: { why: "no" } }) },
    );
    await ask();
    const lines = reports.map((report) => JSON.parse(formatLogLine(report, "prod", 0)));
    assert.deepEqual(
      lines.map(({ Rule, Mode, Reviews, Denials, Errors, verdict }) => [Rule, Mode, Reviews, Denials, Errors, verdict]),
      [
        ["together", "enforce", 1, 0, 0, "denied"],
        ["warns", "warn", 0, 1, 0, "would be denied"],
        ["no", "enforce", 0, 1, 0, "denied"],
      ],
    );
  });

  it("hands a member its needs, whatever others call theirs", async () => {
    const buildReader = (kind: "nodes" | "secrets") =>
      rule({
        summary: "Reads.",
        match: [],
        needs: { thing: get(kind) },
        async mutate(object: KubernetesObject, { thing }) {
          const found = await thing("x");
          object.metadata = { ...object.metadata, labels: { ...object.metadata?.labels, [kind]: String(found?.kind) } };
        },
      });
    const { ask } = createGroup(
      { a: buildReader("nodes"), b: buildReader("secrets") },
      { a: buildMember(), b: buildMember() },
    );
    const objects = [
      { apiVersion: "v1", kind: "Node", metadata: { name: "x" } },
      { apiVersion: "v1", kind: "Secret", metadata: { name: "x" } },
    ];
    const { patch } = await ask({}, { needs: { objects } });
    assert.deepEqual(
      patch.map(({ value }: { value: unknown }) => value),
      [{ nodes: "Node" }, "Secret"],
    );
  });

  describe("invoked directly", () => {
    const rules = { a: buildScribe("a"), no: refusing };

    it("answers for the member that is named, with other settings if they are given", async () => {
      const { ask } = createGroup(rules, {
        a: buildMember({ mode: "warn" }),
        no: buildMember({ settings: { why: "baked" } }),
      });
      const buildStatus = (message: string) => ({ code: 403, reason: "Forbidden", message });
      assert.deepEqual((await ask({}, { cluster: "one", member: "no" })).status, buildStatus("baked"));
      assert.deepEqual((await ask({}, { member: "no" })).status, buildStatus("no"));
      assert.deepEqual((await ask({}, { member: "no", settings: { why: "given" } })).status, buildStatus("given"));
      assert.deepEqual((await ask({}, { cluster: "one", member: "a" })).warnings, ["a would change: /seen"]);
      assert.deepEqual((await ask({}, { member: "a" })).patch, [{ op: "add", path: "/seen", value: ["a"] }]);
    });

    it("refuses a name that is no member", async () => {
      for (const name of ["b", "toString", "__proto__"]) {
        const { code, message } = await createGroup(rules, {}).ask({}, { member: name });
        assert.deepEqual([code, message], [400, `together has no member "${name}"; it has a, no`]);
      }
    });

    it("asks all of them, enforced, where no cluster is named", async () => {
      const { ask } = createGroup(rules, { a: buildMember({ mode: "off" }), no: buildMember({ mode: "off" }) });
      const { status } = await ask({}, {});
      assert.deepEqual(status, { code: 403, reason: "Forbidden", message: "no: no" });
    });
  });
});
