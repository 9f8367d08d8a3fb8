import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Context } from "aws-lambda";
import kinds from "../../infra/apiserver/kinds/kinds.json" with { type: "json" };
import { buildPodRequest, buildPodReview } from "../../test/requests.ts";
import { hasSchemas } from "../admission-policies/merge/schemas.ts";
import { createLambdaHandler } from "../lambda/handler.ts";
import { toPlural } from "../recording/recorded-answers.ts";
import type { AdmissionRequest } from "../review.ts";
import { type RequestMatch, type Rule, rule } from "../rule.ts";
import { findReviewFault } from "./review-faults.ts";

const pods: RequestMatch[] = [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }];
const any: RequestMatch[] = [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["*", "*/*"], operations: ["*"] }];

describe("findReviewFault", () => {
  const customGroup = { group: "example.com", version: "v1" };
  const widget = { kind: { ...customGroup, kind: "Widget" }, resource: { ...customGroup, resource: "widgets" } };
  const scale = { subResource: "scale", kind: { group: "autoscaling", version: "v1", kind: "Scale" } };
  const deepObject = JSON.parse(`${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`);
  const rows: [name: string, changes: Partial<AdmissionRequest>, fault: string | undefined, match?: RequestMatch[]][] =
    [
      ["a pod", { object: { spec: { containers: [{ name: "a", ports: [{ containerPort: 1 }] }] } } }, undefined],
      ["no list of containers", { object: { spec: { containers: null } } }, undefined],
      ["no time of creation", { object: { metadata: { creationTimestamp: null } } }, undefined],
      ["an unknown field", { object: { spec: { later: "x" } } }, undefined],
      ["a quantity as a number", { object: { spec: { overhead: { cpu: 1 } } } }, undefined],
      ["a large integer", { object: { spec: { priority: 2n ** 60n } } }, undefined],
      ["a custom resource", { ...widget, object: { spec: "x", metadata: { labels: { a: "b" } } } }, undefined, any],
      ["the scale of a custom resource", { ...widget, ...scale, object: { spec: { replicas: 1 } } }, undefined, any],
      [
        "a text for containers",
        { object: { spec: { containers: "x" } } },
        "object.spec.containers must be a list, not a string",
      ],
      ["a list for a pod's spec", { object: { spec: [] } }, "object.spec must be an object, not a list"],
      ["null for a pod's metadata", { object: { metadata: null } }, "object.metadata must be an object, not null"],
      ["null for a name", { object: { metadata: { name: null } } }, "object.metadata.name must be a string, not null"],
      [
        "null in a list",
        { object: { spec: { containers: [{}, null] } } },
        "object.spec.containers[1] must be an object, not null",
      ],
      [
        "a number as a label",
        { object: { metadata: { labels: { secret: 1 } } } },
        "object.metadata.labels[…] must be a string, not a number",
      ],
      [
        "true as a quantity",
        { object: { spec: { overhead: { cpu: true } } } },
        "object.spec.overhead[…] must be a string or a number, not a boolean",
      ],
      [
        "very deeply nested objects",
        { object: { spec: { volumes: [deepObject], hostname: deepObject } } },
        "object.spec.hostname must be a string, not an object",
      ],
      ["a wrong old object", { oldObject: { spec: 1 } }, "oldObject.spec must be an object, not a number"],
      ["an update of nothing", { operation: "UPDATE", oldObject: null }, "oldObject must be an object on UPDATE", any],
      ["null for groups", { userInfo: JSON.parse('{"groups":null}') }, "userInfo.groups must not be null"],
      ["null for a namespace", JSON.parse('{"namespace":null}'), "namespace must not be null"],
      [
        "another operation",
        { operation: "DELETE", oldObject: {} },
        "resource and request.operation must be those of a row that the rule matches",
      ],
      [
        "another resource",
        { ...widget },
        "resource and request.operation must be those of a row that the rule matches",
      ],
      ["a pod as a Widget", { kind: widget.kind }, "kind must have the group and version of request.resource"],
      [
        "a pod as a Secret",
        { kind: { group: "", version: "v1", kind: "Secret" } },
        "kind.kind must be Pod for this request.resource",
      ],
      ["an object of another kind", { object: { kind: "Node" } }, "object.kind must be that of request.kind"],
      [
        "a wrong Scale",
        { ...widget, ...scale, object: { spec: { replicas: "x" } } },
        "object.spec.replicas must be a number, not a string",
        any,
      ],
      [
        "a custom resource with wrong labels",
        { ...widget, object: { metadata: { labels: [] } } },
        "object.metadata.labels must be an object, not a list",
        any,
      ],
    ];
  // A row without a fault is a request that an API server may send.
  for (const [name, changes, fault, match = pods] of rows)
    it(`finds ${fault === undefined ? "no" : "a"} fault in a request with ${name}`, () =>
      assert.equal(findReviewFault(buildPodRequest(changes), match), fault && `request.${fault}`));

  it("findReviewFault finds no fault in an object of any built-in kind, unless its metadata has a wrong type", () => {
    for (const [apiVersion, kindsOfVersion] of Object.entries(kinds))
      for (const [kind, { resource }] of Object.entries(kindsOfVersion)) {
        const [version = "", group = ""] = apiVersion.split("/").reverse();
        assert.ok(hasSchemas(group, version));
        assert.equal(resource, toPlural(kind));
        const changes = { kind: { group, version, kind }, resource: { group, version, resource } };
        assert.equal(findReviewFault(buildPodRequest({ ...changes, object: { apiVersion, kind } }), any), undefined);
        const wrongMetadata = { ...changes, object: { apiVersion, kind, metadata: "x" } };
        assert.match(
          findReviewFault(buildPodRequest(wrongMetadata), any) ?? "",
          /metadata must be an object, not a string/,
        );
      }
  });
});

describe("an endpoint", () => {
  const evaluate = async (phase: Pick<Rule, "validate">, changes: Partial<AdmissionRequest>) => {
    const sample = rule({ summary: "Answers.", match: pods, ...phase });
    const handler = createLambdaHandler(
      { rules: { sample }, config: { rule: "sample", clusters: {} } },
      { publicKeys: "", writeLogLine: () => {} },
    );
    const event = { phase: "validate", review: buildPodReview(changes) };
    const { code = 200, message } = (await handler(event, {} as Context)) as { code?: number; message?: string };
    return [code, message];
  };
  const throwingPhase = {
    validate: () => {
      throw new TypeError("it is not a function");
    },
  };
  const wrongObject = { object: { spec: { containers: "x" } } };

  it("an endpoint answers 400 if the rule fails on a wrong type, and names the field and both types", async () =>
    assert.deepEqual(await evaluate(throwingPhase, wrongObject), [
      400,
      "this is no AdmissionReview: request.object.spec.containers must be a list, not a string",
    ]));
  it("an endpoint answers 400 if the rule's promise is rejected for a wrong type", async () =>
    assert.deepEqual((await evaluate({ validate: async () => throwingPhase.validate() }, wrongObject))[0], 400));
  it("an endpoint answers 500 with the message for all TypeErrors if the rule fails on right types", async () =>
    assert.deepEqual(await evaluate(throwingPhase, {}), [500, "the rule failed: a value may have the wrong type"]));
  it("an endpoint answers 200 if the rule doesn't fail on a wrong type", async () =>
    assert.deepEqual((await evaluate({ validate: () => "no" }, wrongObject))[0], 200));
});
