import assert from "node:assert/strict";
import { test } from "node:test";
import { policyCases } from "../../../infra/bench/example-policies.ts";
import { warningsOf } from "./warnings.ts";

const pod = { apiVersion: "v1", kind: "Pod" };
const policy = (kind: string, spec: object, namespace?: string) => ({
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind,
  metadata: { name: "p", ...(namespace && { namespace }) },
  spec: { resourceSelectors: [pod], ...spec },
});
const overriding = (overriders: object, spec = {}) =>
  policy("ClusterOverridePolicy", { overrideRules: [{ overriders }], ...spec });
const judging = (condition: object, rule = {}) =>
  policy("ClusterValidatePolicy", {
    validateRules: [{ template: { type: "condition", condition: { message: "no", ...condition } }, ...rule }],
  });
const selecting = (resourceSelectors: object[]) =>
  policy("OverridePolicy", { resourceSelectors, overrideRules: [] }, "a");
const http = (http: object) =>
  overriding({
    template: {
      type: "labels",
      operation: "add",
      path: "a",
      valueRef: { from: "http", path: "a", http: { url: "https://a", ...http } },
    },
  });

const dataRef = { from: "current", path: "a" };
const over = "spec.overrideRules[0].overriders";
const when = "spec.validateRules[0].template.condition";
const reference = `${over}.template.valueRef.http`;
const readable =
  "can be read by everybody who may read policies; keep it in a secret store and name it in the setting http.credentials";

const table: [name: string, policy: unknown, ...warnings: string[]][] = [
  ["has nothing to say of what is refused anyhow", { kind: "ClusterOverridePolicy" }],
  ["has nothing to say of a usual policy", overriding({ plaintext: [{ op: "remove", path: "/a" }] })],
  [
    "names a policy that concerns everything",
    overriding({ cue: "patches: []" }, { resourceSelectors: [] }),
    "spec.resourceSelectors is empty: the policy concerns every object",
  ],
  [
    "names a policy that concerns all of a namespace",
    selecting([]),
    "spec.resourceSelectors is empty: the policy concerns every object in namespace a",
  ],
  [
    "names a namespace that isn't the policy's",
    selecting([{ ...pod, namespace: "b" }]),
    'spec.resourceSelectors[0].namespace is "b", where the policy never applies: it concerns namespace a alone',
  ],
  [
    "names a kind that has no namespace",
    selecting([{ ...pod, kind: "Node" }]),
    "spec.resourceSelectors[0].kind is Node, which is in no namespace: the policy never applies to it",
  ],
  [
    "names policies as objects",
    selecting([{ apiVersion: "policy.kcloudlabs.io/v1alpha1", kind: "OverridePolicy" }]),
    "spec.resourceSelectors[0] takes policies, which no policy ever concerns",
  ],
  [
    "names what is taken for a pattern",
    selecting([{ apiVersion: "apps/v1", kind: "*" }]),
    "spec.resourceSelectors[0] takes nothing: * is no pattern there",
  ],
  [
    "names labels that aren't looked at",
    selecting([{ ...pod, name: "a", labelSelector: {} }]),
    "spec.resourceSelectors[0].name decides alone; the selectors beside it are ignored",
  ],
  [
    "names operations that never come",
    policy("ClusterOverridePolicy", {
      overrideRules: [{ targetOperations: ["DELETE", "create"], overriders: { cue: "patches: []" } }],
    }),
    "spec.overrideRules[0].targetOperations[0] is DELETE, at which the rule never runs",
    'spec.overrideRules[0].targetOperations[1] is "create", which no operation is called',
  ],
  ["names rules without effect", overriding({}), `${over} is empty: the rule does nothing`],
  [
    "names validate rules without effect",
    policy("ClusterValidatePolicy", { validateRules: [{}] }),
    "spec.validateRules[0] is empty: the rule refuses nothing",
  ],
  [
    "names kinds without pods",
    overriding(
      { origin: [{ type: "hostNetwork", operation: "replace" }] },
      { resourceSelectors: [{ apiVersion: "v1", kind: "ConfigMap" }] },
    ),
    `${over} changes hostNetwork, which ConfigMap doesn't have: nothing happens there`,
  ],
  [
    "names entries that undo each other",
    overriding({ origin: ["a", "b"].map((key) => ({ type: "labels", operation: "add", labels: { [key]: "" } })) }),
    `${over}.origin has labels more than once, and of such entries the last one's keys win over the whole map`,
  ],
  [
    "names operations that fail",
    overriding({ origin: [{ type: "hostNetwork", operation: "remove" }] }),
    `${over}.origin[0].operation is remove, which hostNetwork doesn't take: every request fails; replace works`,
  ],
  ["takes what works without an operation", overriding({ origin: [{ type: "hostNetwork", hostNetwork: true }] })],
  [
    "names keys that Kubernetes refuses",
    overriding({ template: { type: "annotations", operation: "add", path: "A.io/b c", value: { string: "x y" } } }),
    `${over}.template.path makes annotations that Kubernetes refuses: one is "a.io/b c", but name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
  ],
  [
    "names labels that Kubernetes refuses",
    overriding({ template: { type: "labels", operation: "add", value: { stringMap: { a: "x".repeat(64), b: "" } } } }),
    `${over}.template.value.stringMap["a"] makes labels that Kubernetes refuses: one must be no more than 63 bytes`,
  ],
  [
    "takes the keys of a map as steps of a JSON pointer",
    overriding({ template: { type: "labels", operation: "add", value: { stringMap: { "a.io~1b": "c" } } } }),
  ],
  [
    "knows that keys of annotations may have capitals",
    overriding({ template: { type: "annotations", operation: "add", path: "A.io/b", value: { string: "x y" } } }),
  ],
  [
    "names tolerations that Kubernetes refuses",
    overriding({
      template: { type: "tolerations", operation: "add", tolerations: [{ key: "a", operator: "Foo" }] },
    }),
    `${over}.template.tolerations[0].operator: Unsupported value: "Foo": supported values: "Equal", "Exists"`,
  ],
  [
    "names expressions about fields that take nothing",
    selecting([
      {
        ...pod,
        fieldSelector: {
          matchExpressions: [
            { field: "a", operator: "in", value: ["b"] },
            { field: "a", operator: "In" },
            { field: "a", operator: "In", values: ["b"] },
          ],
        },
      },
    ]),
    'spec.resourceSelectors[0].fieldSelector.matchExpressions[0].operator is "in", with which it takes nothing',
    "spec.resourceSelectors[0].fieldSelector.matchExpressions[1].value is empty, with which it takes nothing",
  ],
  [
    "names placeholders of nothing",
    http({ url: "https://a/{{}}" }),
    `${over}.template.valueRef.http has {{}}, a placeholder without a path: every request fails; write {{metadata.name}}`,
  ],
  [
    "names references that aren't looked at",
    overriding({
      template: { type: "labels", operation: "add", path: "a", value: { string: "b" }, valueRef: dataRef },
    }),
    `${over}.template.valueRef is ignored: value is there, too`,
  ],
  [
    "says of references that aren't looked at only what can be read in them",
    overriding({
      template: {
        ...{ type: "labels", operation: "add", path: "a", value: { string: "b" } },
        valueRef: {
          from: "http",
          path: "a",
          http: { url: "http://a/{{}}", method: "POST", auth: { staticToken: "x" } },
        },
      },
    }),
    `${over}.template.valueRef is ignored: value is there, too`,
    `${over}.template.valueRef.http.auth.staticToken ${readable}`,
  ],
  [
    "names values that aren't looked at",
    judging({ cond: "Exist", dataRef, value: { string: "a" } }),
    `${when}.value is ignored: Exist has no use for it`,
  ],
  [
    "names values that references win over",
    judging({ cond: "Equal", dataRef, value: { string: "a" }, valueRef: dataRef }),
    `${when}.value is ignored: valueRef is there, too`,
  ],
  [
    "names refusals without a reason",
    judging({ cond: "Exist", dataRef, message: "" }),
    `${when}.message is empty: whoever is refused isn't told why`,
  ],
  [
    "names what has no order",
    judging({ cond: "Gt", dataRef, value: { boolean: true } }),
    `${when}.value is true or false, which has no order and can't be reckoned with: every request fails`,
  ],
  [
    "names passwords and tokens",
    http({ auth: { password: "x", staticToken: "y" }, header: { authorization: "z" } }),
    `${reference}.auth.password ${readable}`,
    `${reference}.auth.staticToken ${readable}`,
    `${reference}.header.authorization ${readable}`,
  ],
  [
    "names addresses with a password in them, and no others",
    http({ url: "https://a:b@c/{{kind}}", auth: { authUrl: "https://a@c" } }),
    `${reference}.url before its @ ${readable}`,
    `${reference}.auth.authUrl before its @ ${readable}`,
  ],
  ["takes no @ further behind for one", http({ url: "https://a:8443/b@c?d=e@f", auth: { authUrl: "https://a/#@" } })],
  [
    "names what isn't encrypted",
    http({ url: "http://a" }),
    `${reference}.url is not encrypted: whoever is in between can read and change what it says`,
  ],
  [
    "names what fails on a dry run",
    http({ method: "post" }),
    `${reference}.method is POST, which is not sent on a dry run: dry runs of such requests fail`,
  ],
];
for (const [name, policy, ...warnings] of table)
  test(`it ${name}`, () => assert.deepEqual(warningsOf(policy), warnings));

test("it warns in sentences of every measured policy, whatever is wrong with it", () => {
  for (const policy of policyCases.flatMap(({ policies }) => policies))
    for (const warning of warningsOf(policy)) assert.match(warning, /^spec\.\S+ \w/);
});
