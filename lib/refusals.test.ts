import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { buildPodRequest } from "../test/requests.ts";
import {
  type FieldError,
  forbidden,
  formatFieldError,
  getObjectName,
  invalid,
  joinErrors,
  notFound,
  tooMany,
} from "./refusals.ts";
import type { AdmissionRequest, Status } from "./review.ts";

// The expected messages are upstream's.

const request = (changes: Partial<AdmissionRequest> = {}) => buildPodRequest({ name: "a", object: {}, ...changes });
const deployment: Partial<AdmissionRequest> = {
  kind: { group: "apps", version: "v1", kind: "Deployment" },
  resource: { group: "apps", version: "v1", resource: "deployments" },
};
const noName = { name: "" };

describe("the name in a message", () => {
  const table: [name: string, change: Partial<AdmissionRequest>, shown: string][] = [
    ["is the request's name", { name: "a", object: { metadata: { name: "b" } } }, "a"],
    [
      "is the object's name if the request has none",
      { ...noName, object: { metadata: { name: "b", generateName: "c-" } } },
      "b",
    ],
    ["is generateName if neither has a name", { ...noName, object: { metadata: { generateName: "c-" } } }, "c-"],
    ["is Unknown without any name", { ...noName, object: { metadata: {} } }, "Unknown"],
    [
      "is Unknown if the names are empty",
      { ...noName, object: { metadata: { name: "", generateName: "" } } },
      "Unknown",
    ],
    ["is Unknown if the name is not a text", { ...noName, object: { metadata: { name: 1 } } }, "Unknown"],
    ["is Unknown without an object", { ...noName, object: null }, "Unknown"],
    ["is an error text without metadata", { ...noName, object: {} }, "Unknown/errorGettingName"],
  ];
  for (const [name, change, shown] of table) it(name, () => assert.equal(getObjectName(request(change)), shown));
});

describe("a refusal", () => {
  const buildForbidden = (message: string, details: object) => ({ code: 403, reason: "Forbidden", message, details });
  const buildNotFound = (message: string, details: object) => ({ code: 404, reason: "NotFound", message, details });
  const apps = { group: "apps", kind: "deployments" };
  const refusals: [string, Status, Status][] = [
    [
      "with reason Forbidden has the resource without a group for the core group",
      forbidden(request(), "no"),
      buildForbidden('pods "a" is forbidden: no', { name: "a", kind: "pods" }),
    ],
    [
      "with reason Forbidden has the resource with its group",
      forbidden(request(deployment), "no"),
      buildForbidden('deployments.apps "a" is forbidden: no', { name: "a", ...apps }),
    ],
    [
      "with reason Forbidden has the given name",
      forbidden(request(), "no", "own"),
      buildForbidden('pods "own" is forbidden: no', { name: "own", kind: "pods" }),
    ],
    [
      "with reason Forbidden has no name if the given one is empty",
      forbidden(request(), "no", ""),
      buildForbidden("pods is forbidden: no", { kind: "pods" }),
    ],
    [
      "with reason NotFound has the resource without a group for the core group",
      notFound({ group: "", resource: "namespaces" }, "x"),
      buildNotFound('namespaces "x" not found', { name: "x", kind: "namespaces" }),
    ],
    [
      "with reason NotFound has the resource with its group",
      notFound({ group: "apps", resource: "deployments" }, "x"),
      buildNotFound('deployments.apps "x" not found', { name: "x", ...apps }),
    ],
    [
      "with reason TooManyRequests has no details",
      tooMany("limit reached on namespace a"),
      { code: 429, reason: "TooManyRequests", message: "Too many requests: limit reached on namespace a" },
    ],
  ];
  for (const [name, status, expected] of refusals) it(name, () => assert.deepEqual(status, expected));

  const errors: [FieldError, string][] = [
    [{ field: "f", type: "Required value", value: 1, detail: "name it" }, "Required value: name it"],
    [{ field: "f", type: "Required value" }, "Required value"],
    [{ field: "f", type: "Forbidden", value: 1, detail: "may not change" }, "Forbidden: may not change"],
    [
      { field: "f", type: "Invalid value", value: 'a "b"', detail: "must be short" },
      'Invalid value: "a \\"b\\"": must be short',
    ],
    [{ field: "f", type: "Invalid value", value: 3, detail: "" }, "Invalid value: 3"],
    [{ field: "f", type: "Invalid value", value: true }, "Invalid value: true"],
    [{ field: "f", type: "Invalid value", value: { a: [1] } }, 'Invalid value: {"a":[1]}'],
    [{ field: "f", type: "Invalid value" }, "Invalid value: null"],
    [
      { field: "f", type: "Unsupported value", value: "x", detail: 'supported values: "y", "z"' },
      'Unsupported value: "x": supported values: "y", "z"',
    ],
  ];
  for (const [error, text] of errors)
    it(`shows the error of a field as ${text}`, () => assert.equal(formatFieldError(error), text));

  const [requiredError, invalidError] = [
    { field: "spec.a", type: "Required value" },
    { field: "spec.b", type: "Invalid value", value: "x" },
  ] as const;
  it("a refusal for one wrong field has the reason Invalid, and no brackets around the error", () => {
    assert.deepEqual(invalid(request(), "a", [requiredError]), {
      code: 422,
      reason: "Invalid",
      message: 'Pod "a" is invalid: spec.a: Required value',
      details: {
        name: "a",
        kind: "Pod",
        causes: [{ reason: "FieldValueRequired", message: "Required value", field: "spec.a" }],
      },
    });
  });
  it("a refusal for several wrong fields has the reason Invalid, and a cause for each field", () => {
    assert.deepEqual(
      invalid(request(deployment), "", [
        requiredError,
        invalidError,
        invalidError,
        { field: "c", type: "Unsupported value", value: 1 },
        { field: "d", type: "Forbidden" },
      ]),
      {
        code: 422,
        reason: "Invalid",
        message:
          'Deployment.apps "" is invalid: [spec.a: Required value, spec.b: Invalid value: "x", c: Unsupported value: 1, d: Forbidden]',
        details: {
          group: "apps",
          kind: "Deployment",
          causes: [
            { reason: "FieldValueRequired", message: "Required value", field: "spec.a" },
            { reason: "FieldValueInvalid", message: 'Invalid value: "x"', field: "spec.b" },
            { reason: "FieldValueInvalid", message: 'Invalid value: "x"', field: "spec.b" },
            { reason: "FieldValueNotSupported", message: "Unsupported value: 1", field: "c" },
            { reason: "FieldValueForbidden", message: "Forbidden", field: "d" },
          ],
        },
      },
    );
  });

  const joinedErrors: [string[], string][] = [
    [["a"], "a"],
    [["a", "a"], "a"],
    [["a", "b"], "[a, b]"],
    [["b", "a", "b"], "[b, a]"],
  ];
  for (const [texts, text] of joinedErrors)
    it(`joins the errors ${texts} to ${text}`, () => assert.equal(joinErrors(texts), text));
});
