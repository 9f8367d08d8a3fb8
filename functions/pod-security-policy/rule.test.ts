import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { KubernetesObject } from "postern/review";
import { type Case, openRule, patched } from "postern/test";
import { faultOf } from "./check.ts";
import type { Policy } from "./policy.ts";
import { volumeOffences } from "./volumes.ts";

const { cases: all, decideCase } = await openRule(import.meta.dirname);

const any = { rule: "RunAsAny" };
const spec = { seLinux: any, runAsUser: any, supplementalGroups: any, fsGroup: any };
const use = { groups: ["developers"] };

/** What is wrong with a policy that says this. */
const wrong = (said: object, whole: object = {}) => {
  const policy: unknown = { metadata: { name: "p" }, spec: { ...spec, ...said }, use, ...whole };
  return faultOf({ policies: [policy as Policy], accessReviews: false });
};

describe("the settings of pod-security-policy", () => {
  const mistakes: [string, object, object?][] = [
    ['must have a map as policies[0].spec, not "all"', {}, { spec: "all" }],
    ["must have fsGroup in policies[0].spec", {}, { spec: { ...spec, fsGroup: undefined, fsgroup: any } }],
    ['must have a name in lower case as policies[0].metadata.name, not "../p"', {}, { metadata: { name: "../p" } }],
    ['must have true or false as policies[0].spec.privileged, not "no"', { privileged: "no" }],
    [
      'must have one of MustRunAs, MustRunAsNonRoot, RunAsAny as policies[0].spec.runAsUser.rule, not "MustRunAsRoot"',
      { runAsUser: { rule: "MustRunAsRoot" } },
    ],
    ["must have rule in policies[0].spec.runAsUser", { runAsUser: { ranges: [] } }],
    ["must have at least one range in policies[0].spec.fsGroup, for MayRunAs", { fsGroup: { rule: "MayRunAs" } }],
    [
      'must have a min that isn\'t greater than the max in policies[0].spec.fsGroup.ranges[0], not {"min":2,"max":1}',
      { fsGroup: { rule: "MustRunAs", ranges: [{ min: 2, max: 1 }] } },
    ],
    [
      "must have a whole number from 0 to 65535 as policies[0].spec.hostPorts[0].max, not 65536",
      { hostPorts: [{ min: 0, max: 65_536 }] },
    ],
    ['must have a list as policies[0].spec.volumes, not {"0":"*"}', { volumes: { 0: "*" } }],
    ["must have seLinuxOptions in policies[0].spec.seLinux, for MustRunAs", { seLinux: { rule: "MustRunAs" } }],
    [
      'must have a path without ".." as policies[0].spec.allowedHostPaths[0].pathPrefix, not "/srv/.."',
      { allowedHostPaths: [{ pathPrefix: "/srv/.." }] },
    ],
    [
      "must have nothing beside * in policies[0].spec.allowedUnsafeSysctls",
      { allowedUnsafeSysctls: ["*", "kernel.sem"] },
    ],
    [
      "must either allow or forbid kernel.sem, in policies[0] (p)",
      { allowedUnsafeSysctls: ["kernel.sem"], forbiddenSysctls: ["kernel.*"] },
    ],
    [
      "must either allow or forbid kernel.*, in policies[0] (p)",
      { allowedUnsafeSysctls: ["kernel.*"], forbiddenSysctls: ["kernel.sem"] },
    ],
    [
      "must either allow KILL or require that it is dropped, in policies[0] (p)",
      { allowedCapabilities: ["KILL"], requiredDropCapabilities: ["KILL"] },
    ],
    [
      'must have no requiredDropCapabilities beside allowedCapabilities: ["*"], in policies[0] (p)',
      { allowedCapabilities: ["*"], requiredDropCapabilities: ["KILL"] },
    ],
    [
      "must allow the privilege escalation that is its default, in policies[0] (p)",
      { defaultAllowPrivilegeEscalation: true, allowPrivilegeEscalation: false },
    ],
    [
      "must allow the runtime class that is its default, kata, in policies[0] (p)",
      { runtimeClass: { allowedRuntimeClassNames: ["runc"], defaultRuntimeClassName: "kata" } },
    ],
    ["must say in policies[0].use who may use p, or have accessReviews: true", {}, { use: {} }],
    [
      'must have "namespace:name" as policies[0].use.serviceAccounts[0], not "builder"',
      {},
      { use: { serviceAccounts: ["builder"] } },
    ],
    ['must have a list as policies[0].use.users, not "jane"', {}, { use: { users: "jane" } }],
  ];
  for (const [sentence, said, whole] of mistakes)
    it(sentence, () =>
      assert.equal(wrong(said, whole && JSON.parse(JSON.stringify(whole)))?.split("; known are")[0], sentence),
    );

  it("must not have what nobody knows", () => {
    const unknown = JSON.parse('{ "__proto__": [], "privilegd": true }');
    assert.match(wrong(unknown) ?? "", /^must have no "__proto__" in policies\[0\]\.spec; known are privileged, /);
    assert.match(wrong({}, { constructor: {} }) ?? "", /^must have no "constructor" in policies\[0\]; /);
  });
  it("must have a profile's name where one is expected", () => {
    const annotations = { "seccomp.security.alpha.kubernetes.io/allowedProfileNames": "runtime/default,all" };
    assert.match(
      wrong({}, { metadata: { name: "p", annotations } }) ?? "",
      /^must have runtime\/default, .* not "runtime\/default,all"$/,
    );
  });
  it("must have policies, each of its own name", () => {
    assert.match(faultOf({ policies: [], accessReviews: true }) ?? "", /^must have at least one policy/);
    const policy = { metadata: { name: "p" }, spec, use } as Policy;
    assert.equal(
      faultOf({ policies: [policy, policy], accessReviews: true }),
      "must have one policy of the name p, not several",
    );
  });
  it("may be what a cluster once showed", () => {
    const metadata = { name: "p", uid: "u", creationTimestamp: null, annotations: { "example.com/a": "b" } };
    assert.equal(wrong({}, { apiVersion: "policy/v1beta1", kind: "PodSecurityPolicy", metadata }), undefined);
  });
});

describe("a pod that pod-security-policy admits", async () => {
  const cases = all.filter(({ resource, oldObject }) => !resource && !oldObject);
  const pods = cases.map(({ mutate, validate }) => (mutate ?? validate) as KubernetesObject);
  const settings = cases.flatMap(({ settings, needs }) => (settings && !needs ? [settings] : []));

  it("is as it stays, and is valid, under every policy", async () => {
    let filledIn = 0;
    for (const given of settings)
      for (const mutate of pods) {
        const { outcome, refused } = await decideCase({ name: "", settings: given, mutate });
        if (refused) continue;
        const pod = patched(mutate, outcome) as KubernetesObject;
        filledIn++;
        assert.equal(
          (await decideCase({ name: "", settings: given, mutate: pod })).operations,
          0,
          JSON.stringify([given, pod]),
        );
        assert.equal(
          (await decideCase({ name: "", settings: given, validate: pod })).refused,
          false,
          JSON.stringify([given, pod]),
        );
      }
    assert.ok(filledIn > 0);
  });
});

// No table of requests can say so: the API server warns of such annotations where the field is missing.
it("writes an annotation with a seccomp profile into the field", async () => {
  const key = "seccomp.security.alpha.kubernetes.io";
  const metadata = { name: "p", annotations: { [`${key}/allowedProfileNames`]: "unconfined,runtime/default" } };
  const mutate = {
    metadata: { name: "a", annotations: { [`${key}/pod`]: "runtime/default", [`container.${key}/c`]: "unconfined" } },
    spec: { containers: [{ name: "c" }] },
  };
  const entry: Case = { name: "", settings: { policies: [{ metadata, spec, use }] }, mutate };
  const { outcome } = await decideCase(entry);
  assert.deepEqual(Object(patched(mutate, outcome)).spec, {
    securityContext: { seccompProfile: { type: "RuntimeDefault" } },
    containers: [{ name: "c", securityContext: { seccompProfile: { type: "Unconfined" } } }],
  });
});

describe("a pod that pod-security-policy refuses", () => {
  const policy = (more: object): Policy =>
    JSON.parse(JSON.stringify({ metadata: { name: "p" }, spec: { ...spec, ...more }, use }));

  it("hears why even where a single reason is too long to be told", async () => {
    const path = "a".repeat(100_000);
    const policies = [policy({ volumes: ["hostPath"], allowedHostPaths: [{ pathPrefix: "/srv" }] })];
    const volumes = [{ name: "v", hostPath: { path } }];
    const validate = { metadata: { name: "a" }, spec: { volumes, containers: [] } };
    const entry: Case = { name: "", settings: { policies }, validate };
    const message = (await decideCase(entry)).outcome.status?.message ?? "";
    const start = 'pods "a" is forbidden: unable to validate against any pod security policy: [';
    const reason = `spec.volumes[0].hostPath.pathPrefix: Invalid value: "${path}`;
    assert.equal(message, `${start}${reason.slice(0, 65_536)} …]`);
  });
  it("has each of its mounts looked at once, however many volumes there are", () => {
    let looks = 0;
    const volumeMounts = Array.from({ length: 100 }, (_, index) => ({
      mountPath: "/m",
      readOnly: index !== 99,
      get name() {
        looks++;
        return `v${index}`;
      },
    }));
    const volumes = Array.from({ length: 100 }, (_, index) => ({ name: `v${index}`, hostPath: { path: "/srv" } }));
    const pod = { spec: { volumes, containers: [{ name: "c", volumeMounts }] } };
    const readOnly = policy({ volumes: ["*"], allowedHostPaths: [{ pathPrefix: "/srv", readOnly: true }] });
    assert.deepEqual(
      [...volumeOffences(readOnly, pod)],
      ["spec.containers[0].volumeMounts[99].readOnly: Invalid value: false: must be read-only"],
    );
    assert.equal(looks, volumeMounts.length);
  });
});

describe("who may use a policy", () => {
  const judged = (use: object, request: object = {}) => {
    const given = { policies: [{ metadata: { name: "p" }, spec, use }] };
    const validate = { metadata: { name: "a" }, spec: { serviceAccountName: "builder", containers: [] } };
    const entry: Case = { name: "", settings: given, validate, namespace: "shop", ...request };
    return decideCase(entry);
  };
  const mayUse = async (use: object, request?: object) => !(await judged(use, request)).refused;

  it("is the pod's service account, in its own namespace", async () => {
    assert.equal(await mayUse({ serviceAccounts: ["shop:builder"] }), true);
    assert.equal(await mayUse({ serviceAccounts: ["bank:builder"] }), false);
    assert.equal(await mayUse({ groups: ["system:serviceaccounts:shop"] }), true);
    assert.equal(await mayUse({ groups: ["system:serviceaccounts:bank"] }), false);
  });
  it("is nobody but in the namespaces that are named", async () => {
    assert.equal(await mayUse({ users: ["jane"], namespaces: ["bank", "shop"] }), true);
    assert.equal(await mayUse({ users: ["jane"], namespaces: ["bank"] }), false);
    assert.equal(await mayUse({ users: ["jane"], namespaces: [] }), true);
  });
  it("is whom the cluster says, asked of the account before the user", async () => {
    const account = {
      username: "system:serviceaccount:shop:builder",
      groups: ["system:serviceaccounts", "system:serviceaccounts:shop"],
    };
    const asked = { verb: "use", group: "policy", resource: "podsecuritypolicies", namespace: "shop", name: "p" };
    const settings = { accessReviews: true, policies: [{ metadata: { name: "p" }, spec }] };
    // What isn't recorded may not be asked.
    const needs = { may: [{ ...asked, user: account, allowed: true }] };
    assert.equal(await mayUse({}, { settings, needs }), true);
    const others = [asked, { ...asked, group: "extensions" }].map((one) => ({ ...one, user: account, allowed: false }));
    const user = { username: "jane", groups: ["developers"] };
    const either = { may: [...others, { ...asked, user, allowed: true }] };
    assert.equal(await mayUse({}, { settings, user, needs: either }), true);
  });
  it("is nobody by a name that is empty", async () => {
    assert.equal(await mayUse({ users: ["john"] }, { user: {} }), false);
  });
});
