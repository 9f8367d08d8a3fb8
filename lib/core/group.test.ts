import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import { buildPodReview } from "../../test/requests.ts";
import { createLambdaHandler } from "../lambda/handler.ts";
import { get } from "../needs.ts";
import type { KubernetesObject } from "../review.ts";
import { type Rule, rule } from "../rule.ts";
import { createUnconnectedCapabilities } from "./capabilities.ts";
import type { EnforcementMode } from "./evaluation.ts";
import type { GroupConfig, GroupMemberConfig } from "./group.ts";
import { type AnsweredReviewFacts, formatLogLine } from "./log-line.ts";

const pods = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] as const }];

/** Returns a rule that adds its name to a list in the object. The list shows the order of evaluations. */
const buildWriter = (name: string): Rule =>
  rule({
    summary: "Writes.",
    match: [],
    mutate(object: KubernetesObject & { seen?: string[] }) {
      if (!object.seen?.includes(name)) object.seen = [...(object.seen ?? []), name];
    },
  });
/** Returns a rule that adds its name to the list only after the leader's name. */
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

type MemberChanges = Record<string, Partial<GroupMemberConfig>>;

/**
 * Creates the endpoint of a group. `changes` says in what the members' configs in cluster "one" differ from the
 * default.
 */
const createGroup = (members: Record<string, Rule>, changes: MemberChanges = {}) => {
  const reports: AnsweredReviewFacts[] = [];
  const mode: EnforcementMode = "enforce";
  const buildConfigs = (change: (name: string) => Partial<GroupMemberConfig> | undefined) => {
    const base: GroupMemberConfig = { mode, settings: {}, match: pods, failsOpen: false, exempt: {} };
    return Object.fromEntries(Object.keys(members).map((name) => [name, { ...base, ...change(name) }]));
  };
  const config: GroupConfig = {
    rule: "together",
    clusters: { one: { keyVersions: [1], mode, settings: buildConfigs((name) => changes[name]) } },
    // For direct invocations that name no cluster.
    alone: buildConfigs((name) => ({ settings: members[name]?.settings ?? {} })),
  };
  const handler = createLambdaHandler(
    { rules: members, config },
    {
      publicKeys: "",
      openCapabilities: createUnconnectedCapabilities,
      writeLogLine: (report) => void reports.push(report),
    },
  );
  const ask = async (request: object = {}, event: object = { cluster: "one" }) => {
    const userInfo = { username: "jane", groups: ["developers"] };
    const review = buildPodReview({ namespace: "shop", userInfo, ...request });
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

describe("a group", () => {
  it("a group evaluates its members in their order, each with the changes of the earlier members", async () => {
    const { ask } = createGroup({ b: buildWriter("b"), a: buildWriter("a") });
    const { patch } = await ask();
    assert.deepEqual(patch, [
      { op: "add", path: "/seen", value: ["b"] },
      { op: "add", path: "/seen/1", value: "a" },
    ]);
  });

  it("a group evaluates the members that precede a change a second time, but not a third time", async () => {
    const rules = {
      third: buildFollower("third", "second"),
      second: buildFollower("second", "first"),
      first: buildWriter("first"),
    };
    const { ask } = createGroup(rules);
    const { patch } = await ask();
    // `third` precedes the change that `second` makes in the second round, so it would need a third round.
    assert.deepEqual(patch, [
      { op: "add", path: "/seen", value: ["first"] },
      { op: "add", path: "/seen/1", value: "second" },
    ]);
  });

  it("a group evaluates members again that follow a change of the second round", async () => {
    const rules = {
      second: buildFollower("second", "first"),
      first: buildWriter("first"),
      third: buildFollower("third", "second"),
    };
    const { ask } = createGroup(rules);
    const { patch } = await ask();
    assert.deepEqual(
      patch.map(({ value }: { value: unknown }) => value),
      [["first"], "second", "third"],
    );
  });

  it("a group applies an exception only to its member, until the end of the exception, with a log line", async () => {
    const exception = { namespaces: ["shop"], until: "2027-01-31", owner: "o", reason: "r" };
    const rules = { a: buildWriter("a"), no: refusing, b: buildWriter("b") };
    const { ask, reports } = createGroup(rules, {
      no: { settings: { why: "no" }, exempt: { exceptions: [exception] } },
    });
    const { allowed, patch, auditAnnotations } = await ask({}, { cluster: "one", now: "2027-01-31T12:00:00Z" });
    const text = "until 2027-01-31 (o): r";
    assert.deepEqual([allowed, auditAnnotations, patch.length], [true, { "no.exception": text }, 2]);
    const lines = reports.map((report) => JSON.parse(formatLogLine(report, "test", 0)));
    assert.deepEqual(
      lines.map(({ Rule, verdict, exception, Reviews }) => [Rule, verdict, exception, Reviews]),
      [
        ["together", "changed", undefined, 1],
        ["no", "allowed", text, 0],
      ],
    );
    assert.equal((await ask({}, { cluster: "one", now: "2027-02-01T00:00:00Z" })).allowed, false);
    assert.equal((await ask({ namespace: "lab" }, { cluster: "one", now: "2027-01-31T12:00:00Z" })).allowed, false);
  });

  it("a group refuses with the name and message of its first refusing member, and skips later members", async () => {
    const rules = { a: buildWriter("a"), no: refusing, broken: failing };
    const { ask, reports } = createGroup(rules, { no: { settings: { why: "no!" } } });
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

  it("a group only reports changes and refusals of members in modes warn and audit; later members don't get them", async () => {
    const rules = {
      warns: buildWriter("warns"),
      audits: buildWriter("audits"),
      no: refusing,
      acts: buildWriter("acts"),
    };
    const { ask } = createGroup(rules, {
      warns: { mode: "warn" },
      audits: { mode: "audit" },
      no: { mode: "warn", settings: { why: "no" } },
    });
    const answer = await ask();
    assert.deepEqual(answer.patch, [{ op: "add", path: "/seen", value: ["acts"] }]);
    assert.deepEqual(answer.warnings, ["warns would change: /seen", "no would deny: no", "beware"]);
    assert.deepEqual(answer.auditAnnotations, { "audits.would-change": "/seen", "no.note": "seen" });
  });

  const statuses = [{ ...pods[0], resources: ["pods/status"] }] as GroupMemberConfig["match"];
  // A name that begins with "that" describes the member, and one with "for" the request.
  const memberCases: [name: string, change: Partial<GroupMemberConfig>, request: object][] = [
    ["in mode off", { mode: "off" }, {}],
    ["that matches another resource", { match: [{ ...pods[0], resources: ["services"] } as never] }, {}],
    ["that matches another operation", { match: [{ ...pods[0], operations: ["UPDATE"] } as never] }, {}],
    ["that exempts the namespace", { exempt: { namespaces: ["a", "shop"] } }, {}],
    ["that exempts the user", { exempt: { users: ["jane"] } }, {}],
    ["that exempts one of the user's groups", { exempt: { groups: ["developers"] } }, {}],
    ["that exempts the resource", { exempt: { resources: ["apps/pods/", "/pods/"] } }, {}],
    [
      "that exempts the subresource",
      { exempt: { resources: ["/pods/status"] }, match: statuses },
      { subResource: "status" },
    ],
    ["for a resource of which only a subresource is exempt", { exempt: { resources: ["/pods/status"] } }, {}],
    [
      "for a subresource whose resource is exempt",
      { exempt: { resources: ["/pods/"] }, match: statuses },
      { subResource: "status" },
    ],
    ["for an object without a namespace, which no exempt namespace contains", {}, { namespace: undefined }],
  ];
  for (const [name, change, request] of memberCases) {
    const isEvaluated = name.startsWith("for");
    it(`${isEvaluated ? "evaluates a member" : "doesn't evaluate a member"} ${name}`, async () => {
      const rules = { one: buildWriter("one"), other: buildWriter("other") };
      const { ask } = createGroup(rules, {
        one: { match: [...pods, ...statuses] },
        other: { exempt: { namespaces: ["shop"] }, ...change },
      });
      const { patch } = await ask(request);
      assert.deepEqual(patch.length, isEvaluated ? 2 : 1);
    });
  }

  it("a group admits without a change if no member applies to the request", async () => {
    const { ask } = createGroup({ a: buildWriter("a") }, { a: { exempt: { users: ["jane"] } } });
    const expected = { uid: "1", allowed: true, code: undefined, message: undefined, patch: undefined };
    assert.deepEqual(await ask(), expected);
  });

  it("a group fails, and names the member, if a member in mode enforce fails", async () => {
    const { ask } = createGroup({ a: buildWriter("a"), broken: failing });
    const { code, message } = await ask();
    assert.deepEqual([code, message], [500, "broken: the rule failed: Error: broken"]);
  });

  for (const mode of ["enforce", "warn"] as const)
    it(`continues after the failure of a member in mode ${mode} that fails open, and logs the failure`, async () => {
      const rules = { broken: failing, a: buildWriter("a") };
      const { ask, reports } = createGroup(rules, { broken: { mode, failsOpen: true } });
      const { allowed, patch } = await ask();
      assert.deepEqual([allowed, patch.length], [true, 1]);
      const [, memberReport] = reports;
      assert.deepEqual([memberReport?.rule, memberReport?.code, memberReport?.mode], ["broken", 500, mode]);
      assert.match(memberReport?.error?.message ?? "", /^broken: the rule failed: Error: broken$/);
    });

  it("a group answers 400 if a member fails on a wrong type, though it fails open", async () => {
    const { ask, reports } = createGroup({ a: buildWriter("a"), broken: failing }, { broken: { failsOpen: true } });
    const { code, message } = await ask({ object: { spec: "x" } });
    assert.deepEqual(
      [code, message, reports.length],
      [400, "broken: this is no AdmissionReview: request.object.spec must be an object, not a string", 1],
    );
  });

  it("a group's log line counts the review, and the log line of each denying member counts its denial", async () => {
    const { ask, reports } = createGroup(
      { warns: refusing, no: refusing },
      { warns: { mode: "warn", settings: { why: "hm" } }, no: { settings: { why: "no" } } },
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
    assert.deepEqual(
      lines.map(({ user, message }) => [user, message]),
      [
        [undefined, undefined],
        ["jane", "hm"],
        ["jane", "no"],
      ],
    );
  });

  it("a group reports the warnings of a member as one message, and no members that did nothing", async () => {
    const warning = rule({ summary: "Warns.", match: [], mutate: () => ({ warnings: ["it is old", "it is large"] }) });
    const { ask, reports } = createGroup({ a: buildWriter("a"), warning, quiet: buildFollower("quiet", "none") });
    await ask();
    assert.deepEqual(
      reports.map(({ members }) => members?.map(({ rule, message }) => [rule, message])),
      [
        [
          ["a", undefined],
          ["warning", "it is old; it is large"],
        ],
      ],
    );
  });

  it("each member of a group gets the answers of its own need, even if two needs have the same name", async () => {
    const buildReader = (kind: "nodes" | "secrets") =>
      rule({
        summary: "Reads.",
        match: [],
        needs: { thing: get(kind) },
        async mutate(object: KubernetesObject, { thing }) {
          const found = await thing({ name: "x" });
          object.metadata = { ...object.metadata, labels: { ...object.metadata?.labels, [kind]: String(found?.kind) } };
        },
      });
    const { ask } = createGroup({ a: buildReader("nodes"), b: buildReader("secrets") });
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
    const rules = { a: buildWriter("a"), no: refusing };

    it("answers with the named member alone, under the event's settings if it has some", async () => {
      const { ask } = createGroup(rules, { a: { mode: "warn" }, no: { settings: { why: "of cluster one" } } });
      const buildStatus = (message: string) => ({ code: 403, reason: "Forbidden", message });
      assert.deepEqual((await ask({}, { cluster: "one", member: "no" })).status, buildStatus("of cluster one"));
      assert.deepEqual((await ask({}, { member: "no" })).status, buildStatus("no"));
      assert.deepEqual(
        (await ask({}, { member: "no", settings: { why: "of event" } })).status,
        buildStatus("of event"),
      );
      assert.deepEqual((await ask({}, { cluster: "one", member: "a" })).warnings, ["a would change: /seen"]);
      assert.deepEqual((await ask({}, { member: "a" })).patch, [{ op: "add", path: "/seen", value: ["a"] }]);
    });

    it("refuses a name that is not a member", async () => {
      for (const name of ["b", "toString", "__proto__"]) {
        const { code, message } = await createGroup(rules).ask({}, { member: name });
        assert.deepEqual([code, message], [400, `together has no member "${name}"; it has a, no`]);
      }
    });

    it("evaluates all members in mode enforce if no cluster is named", async () => {
      const { ask } = createGroup(rules, { a: { mode: "off" }, no: { mode: "off" } });
      const { status } = await ask({}, {});
      assert.deepEqual(status, { code: 403, reason: "Forbidden", message: "no: no" });
    });
  });
});
