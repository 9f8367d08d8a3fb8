import { isMap, type JsonMap } from "#lib/json.ts";
import type { Phase } from "#lib/rule.ts";

/** The `response` of a webhook's AdmissionReview, validated and decoded. */
export interface HookResponse {
  allowed: boolean;
  status?: JsonMap;
  /** The decoded text of the patch; it isn't parsed yet and may be invalid. */
  patch?: string;
  patchType?: string;
  warnings: string[];
  audit: Record<string, string>;
}

/** The API server's error for a webhook's invalid response. */
interface InvalidWebhookResponse {
  fault: string;
}

const group = "admission.k8s.io";

/** Returns the AdmissionReview version that the API server sends: the hook's first known one, if any. */
export const chooseReviewVersion = (versions: readonly string[]): "v1" | "v1beta1" | undefined =>
  versions.find((version) => version === "v1" || version === "v1beta1");

/** Parses a hook's response with the API server's checks in its order, so that it finds the same fault first. */
export const parseHookResponse = (
  phase: Phase,
  version: "v1" | "v1beta1",
  uid: string,
  body: unknown,
): HookResponse | InvalidWebhookResponse => {
  const undecoded = findDecodingFault(version, body);
  if (undecoded !== undefined) return { fault: `failed to call webhook: ${undecoded}` };
  const { response } = body as JsonMap;
  let invalid = isMap(response) ? undefined : "webhook response was absent";
  if (isMap(response) && version === "v1") invalid = findContentFault(phase, uid, body as JsonMap, response);
  if (invalid !== undefined) return { fault: `received invalid webhook response: ${invalid}` };

  const { allowed, status, patch, patchType, warnings, auditAnnotations } = response as JsonMap;
  const answer: HookResponse = {
    allowed: allowed === true,
    warnings: ((warnings as string[] | null) ?? []).map((warning) => warning ?? ""),
    audit: Object.fromEntries(
      Object.entries((auditAnnotations as Record<string, string> | null) ?? {}).map(([key, annotation]) => [
        key,
        annotation ?? "",
      ]),
    ),
  };
  if (isMap(status)) answer.status = status;
  const text = phase === "mutate" && typeof patch === "string" ? Buffer.from(patch, "base64").toString("utf8") : "";
  if (text !== "") {
    answer.patch = text;
    // JSONPatch is the only patch type in v1beta1, and the API server ignores the field.
    answer.patchType = version === "v1" ? String(patchType) : "JSONPatch";
  }
  return answer;
};

/** Returns the API server's error for a body that it can't decode as an AdmissionReview of this version. */
const findDecodingFault = (version: string, body: unknown): string | undefined => {
  if (!isMap(body)) return `couldn't get version/kind; json parse error: ${describeMismatch(body, "", typeMetaGoType)}`;
  const { apiVersion = "", kind = "" } = body;
  // Nearly all bodies pass the checks below.
  if (apiVersion === `${group}/${version}` && kind === "AdmissionReview") return findTypeFault(body);
  for (const [key, value] of Object.entries({ apiVersion, kind }))
    if (value !== null && typeof value !== "string")
      return `couldn't get version/kind; json parse error: ${describeMismatch(value, `struct field .${key}`, "string")}`;
  const statedVersion = String(apiVersion ?? "") || `${group}/${version}`;
  const statedKind = String(kind ?? "") || "AdmissionReview";
  const isKnown = [`${group}/v1`, `${group}/v1beta1`].includes(statedVersion);
  if (!isKnown || statedKind !== "AdmissionReview")
    return `no kind "${statedKind}" is registered for version "${statedVersion}" in scheme "pkg/runtime/scheme.go:110"`;
  if (statedVersion !== `${group}/${version}`) {
    const otherVersion = version === "v1" ? "v1beta1" : "v1";
    return `converting (${otherVersion}.AdmissionReview) to (${version}.AdmissionReview): unknown conversion`;
  }
  return findTypeFault(body);
};

const typeMetaGoType =
  'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }';

/** The fields of an AdmissionResponse that the API server decodes, with their Go types; null counts as absent. */
const fields: Record<string, string> = {
  uid: "types.UID",
  allowed: "bool",
  patchType: "v1.PatchType",
  patch: "[]uint8",
  status: "v1.Status",
  warnings: "[]string",
  auditAnnotations: "map[string]string",
};
const statusFields: Record<string, string> = {
  status: "string",
  message: "string",
  reason: "v1.StatusReason",
  code: "int32",
  details: "v1.StatusDetails",
};

/** Returns the error of Go's decoder for the first field of a response that has a wrong type. */
const findTypeFault = ({ response }: JsonMap): string | undefined => {
  const place = "AdmissionReview.response";
  if (response == null) return undefined;
  if (!isMap(response)) return describeMismatch(response, `struct field ${place}`, "v1.AdmissionResponse");
  for (const key of Object.keys(response)) {
    const value = response[key];
    if (!Object.hasOwn(fields, key) || value === null) continue;
    const type = fields[key] ?? "";
    const fault = checkType(value, type, `AdmissionResponse.response.${key}`);
    if (fault !== undefined) return fault;
    if (key !== "status") continue;
    for (const [name, inner] of Object.entries(value as JsonMap)) {
      const innerType = Object.hasOwn(statusFields, name) ? statusFields[name] : undefined;
      if (innerType === undefined || inner === null) continue;
      const statusFault = checkType(inner, innerType, `Status.response.status.${name}`);
      if (statusFault !== undefined) return statusFault;
    }
  }
  return undefined;
};

/** Returns the fault of a value that doesn't decode into a Go field of this type. */
const checkType = (value: unknown, type: string, place: string): string | undefined => {
  const describeWrong = (what: unknown, wanted: string) => describeMismatch(what, `struct field ${place}`, wanted);
  if (type === "bool") return typeof value === "boolean" ? undefined : describeWrong(value, type);
  if (type === "int32")
    return Number.isInteger(value) && Math.abs(Number(value)) < 2 ** 31 ? undefined : describeWrong(value, type);
  if (type === "[]string" || type === "map[string]string") {
    if (type === "[]string" ? !Array.isArray(value) : !isMap(value)) return describeWrong(value, type);
    const wrongMember = Object.values(value as object).find((member) => member !== null && typeof member !== "string");
    return wrongMember === undefined ? undefined : describeWrong(wrongMember, "string");
  }
  if (type === "v1.Status" || type === "v1.StatusDetails") return isMap(value) ? undefined : describeWrong(value, type);
  if (typeof value !== "string") return describeWrong(value, type);
  return type === "[]uint8" ? findBase64Fault(value) : undefined;
};

const describeMismatch = (value: unknown, place: string, type: string): string =>
  `json: cannot unmarshal ${describeJsonValue(value)} into Go ${place ? `${place} of type` : "value of type"} ${type}`;

/** Returns Go's words for a JSON value in a decoding error. A number that no integer field can hold is stated. */
const describeJsonValue = (value: unknown): string => {
  if (Array.isArray(value)) return "array";
  if (typeof value === "boolean") return "bool";
  return typeof value === "number" && !Number.isSafeInteger(value) ? `number ${value}` : typeof value;
};

/** Returns the error that Go's base64 decoder has for a text: it ignores line breaks and requires padding. */
const findBase64Fault = (text: string): string | undefined => {
  if (text.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(text)) return undefined;
  const bytes = Buffer.from(text);
  const isLineBreak = (byte: number) => byte === 10 || byte === 13;
  const characters = Buffer.from(bytes.filter((byte) => !isLineBreak(byte))).toString("latin1");
  const describeByte = (index: number) => `illegal base64 data at input byte ${index}`;
  const describeCharacter = (indexInCharacters: number, offset = 0) => {
    const indexesInText = [...bytes.keys()].filter((index) => !isLineBreak(bytes.readUInt8(index)));
    return describeByte(Number(indexesInText[indexInCharacters]) + offset);
  };
  const { length } = characters.match(/^[A-Za-z0-9+/]*/)?.[0] ?? "";
  /** How many characters an incomplete last group has before its padding; 0 if all groups of four are complete. */
  const inLastGroup = length % 4;
  if (length === characters.length) return inLastGroup === 0 ? undefined : describeByte(bytes.length - inLastGroup);
  if (characters[length] !== "=" || inLastGroup < 2) return describeCharacter(length);
  if (inLastGroup === 2 && length + 1 === characters.length) return describeByte(bytes.length);
  // A missing second "=" is reported at the byte before the character that stands in its place.
  if (inLastGroup === 2 && characters[length + 1] !== "=") return describeCharacter(length + 1, -1);
  const end = length + 4 - inLastGroup;
  return end < characters.length ? describeCharacter(end) : undefined;
};

/** Returns the API server's error text for an AdmissionReview response that it doesn't accept. */
const findContentFault = (phase: Phase, uid: string, body: JsonMap, response: JsonMap): string | undefined => {
  if (response.uid !== uid) return `expected response.uid="${uid}", got ${JSON.stringify(response.uid ?? "")}`;
  const { apiVersion, kind } = body;
  if (!apiVersion || !kind)
    return `expected webhook response of ${group}/v1, Kind=AdmissionReview, got ${apiVersion || "/"}, Kind=${kind ?? ""}`;
  const { patch, patchType } = response;
  const [hasPatch, hasType] = [patch != null && patch !== "", patchType != null];
  if (phase === "validate") {
    if (hasPatch) return "validating webhook may not return response.patch";
    return hasType ? "validating webhook may not return response.patchType" : undefined;
  }
  if (hasPatch && !hasType) return "webhook returned response.patch but not response.patchType";
  if (!hasPatch && hasType) return "webhook returned response.patchType but not response.patch";
  return hasType && patchType === "" ? 'webhook returned invalid response.patchType of ""' : undefined;
};
