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
const unnamed = { name: "" };

describe("the name in a message", () => {
  const table: [name: string, change: Partial<AdmissionRequest>, shown: string][] = [
    ["is the request's", { name: "a", object: { metadata: { name: "b" } } }, "a"],
    ["is else the object's", { ...unnamed, object: { metadata: { name: "b", generateName: "c-" } } }, "b"],
    ["is else its prefix", { ...unnamed, object: { metadata: { generateName: "c-" } } }, "c-"],
    ["is else Unknown", { ...unnamed, object: { metadata: {} } }, "Unknown"],
    [
      "is Unknown where names are empty",
      { ...unnamed, object: { metadata: { name: "", generateName: "" } } },
      "Unknown",
    ],
    ["is Unknown where names are none", { ...unnamed, object: { metadata: { name: 1 } } }, "Unknown"],
    ["is Unknown without an object", { ...unnamed, object: null }, "Unknown"],
    ["says so where there is no metadata", { ...unnamed, object: {} }, "Unknown/errorGettingName"],
  ];
  for (const [name, change, shown] of table) it(name, () => assert.equal(getObjectName(request(change)), shown));
});

describe("a refusal", () => {
  const buildForbidden = (message: string, details: object) => ({ code: 403, reason: "Forbidden", message, details });
  const buildNotFound = (message: string, details: object) => ({ code: 404, reason: "NotFound", message, details });
  const apps = { group: "apps", kind: "deployments" };
  const refusals: [string, Status, Status][] = [
    [
      "is Forbidden of a resource of the core group",
      forbidden(request(), "no"),
      buildForbidden('pods "a" is forbidden: no', { name: "a", kind: "pods" }),
    ],
    [
      "is Forbidden of a resource of another group",
      forbidden(request(deployment), "no"),
      buildForbidden('deployments.apps "a" is forbidden: no', { name: "a", ...apps }),
    ],
    [
      "is Forbidden by the object's own name",
      forbidden(request(), "no", "own"),
      buildForbidden('pods "own" is forbidden: no', { name: "own", kind: "pods" }),
    ],
    [
      "is Forbidden by no name",
      forbidden(request(), "no", ""),
      buildForbidden("pods is forbidden: no", { kind: "pods" }),
    ],
    [
      "is NotFound of the core group",
      notFound({ group: "", resource: "namespaces" }, "x"),
      buildNotFound('namespaces "x" not found', { name: "x", kind: "namespaces" }),
    ],
    [
      "is NotFound of another group",
      notFound({ group: "apps", resource: "deployments" }, "x"),
      buildNotFound('deployments.apps "x" not found', { name: "x", ...apps }),
    ],
    [
      "is TooManyRequests, without details",
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
  for (const [error, body] of errors) it(`of a field reads ${body}`, () => assert.equal(formatFieldError(error), body));

  const [required, wrong] = [
    { field: "spec.a", type: "Required value" },
    { field: "spec.b", type: "Invalid value", value: "x" },
  ] as const;
  it("has the reason Invalid and no brackets for one field", () => {
    assert.deepEqual(invalid(request(), "a", [required]), {
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
  it("has the reason Invalid and a cause for each of several fields", () => {
    assert.deepEqual(
      invalid(request(deployment), "", [
        required,
        wrong,
        wrong,
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

  const several: [string[], string][] = [
    [["a"], "a"],
    [["a", "a"], "a"],
    [["a", "b"], "[a, b]"],
    [["b", "a", "b"], "[b, a]"],
  ];
  for (const [texts, text] of several) it(`of ${texts} reads ${text}`, () => assert.equal(joinErrors(texts), text));
});
