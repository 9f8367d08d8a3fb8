// The code of a disarmed version. Until the time in DISARMED_UNTIL, it allows every review with a warning. It doesn't
// load the rule's code (rule.cjs) before that time, because the rule's code may fail to start. After that time,
// rule.cjs answers.
const { createPublicKey, verify } = require("node:crypto");

const { DISARMED_UNTIL = "", DISARMED_RULE = "this rule", POSTERN_KEYS = "", POSTERN_ACCEPTS } = process.env;

exports.handler = (event, context) => {
  if (!(Date.now() < Date.parse(DISARMED_UNTIL))) return require("./rule.cjs").handler(event, context);
  const answer = createAnswer(event);
  process.stdout.write(
    `${JSON.stringify({ Rule: DISARMED_RULE, verdict: "disarmed", code: answer.statusCode ?? 200 })}\n`,
  );
  return Promise.resolve(answer);
};

/** Returns the answer to a direct invocation, which has the field `review`, or to an HTTP request of a gateway. */
const createAnswer = (event) => {
  if (event?.review !== undefined) return allow(event.review) ?? {};
  const answer = (statusCode, body) => {
    const headers = { "content-type": "application/json" };
    const multiValueHeaders = { "content-type": ["application/json"] };
    const elb = event?.requestContext?.elb && { statusDescription: String(statusCode) };
    return {
      statusCode,
      ...elb,
      headers,
      ...(event?.multiValueHeaders && { multiValueHeaders }),
      body,
      isBase64Encoded: false,
    };
  };
  const agent = event?.headers?.["user-agent"] ?? event?.multiValueHeaders?.["user-agent"]?.[0] ?? "";
  if (agent.startsWith("ELB-HealthChecker/")) return answer(200, "");
  if (!hasValidKey(event)) return answer(404, toStatus(404, "NotFound", "there is nothing here"));
  const reviewed = allow(parseReview(event));
  return reviewed
    ? answer(200, JSON.stringify(reviewed))
    : answer(400, toStatus(400, "BadRequest", "this is no AdmissionReview"));
};

/** Reports whether a request has a valid key; other callers must not learn that the rule is disarmed. */
const hasValidKey = (event) => {
  const segments = String(event?.rawPath ?? event?.path ?? "").split("/");
  const phase = segments.findLastIndex((segment) => segment === "mutate" || segment === "validate");
  // The path is …/{cluster}.{key}/{rule}/{phase}…; a key is an Ed25519 signature of 86 characters in base64url.
  const [, cluster, signature] = /^([a-z0-9-]+)\.([\w-]{85}[AQgw])$/.exec(segments[phase - 2] ?? "") ?? [];
  const versions = cluster === undefined ? [] : listKeyVersions(cluster);
  return POSTERN_KEYS.split(",").some((x) =>
    versions.some((version) => {
      const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
      return verify(null, Buffer.from(`postern/1 ${cluster} ${version}`), key, Buffer.from(signature, "base64url"));
    }),
  );
};

/** Returns the versions of a cluster's key that the rule accepts. Older Postern versions list them in a variable. */
const listKeyVersions = (cluster) => {
  if (POSTERN_ACCEPTS !== undefined)
    // For instance "prod.1,prod.2,test.1".
    return POSTERN_ACCEPTS.split(",").flatMap((item) => (item.split(".")[0] === cluster ? item.split(".")[1] : []));
  // keys.json has only clusters whose key versions are not the usual [1].
  const keyVersions = require("./keys.json");
  return Object.hasOwn(keyVersions, cluster) ? keyVersions[cluster] : [1];
};

const parseReview = ({ body, isBase64Encoded }) => {
  try {
    return JSON.parse(isBase64Encoded ? Buffer.from(body, "base64").toString() : body);
  } catch {
    return undefined;
  }
};

/** Returns an AdmissionReview that allows the request; undefined if `review` is no AdmissionReview. */
const allow = (review) => {
  const { kind, apiVersion, request } = Object(review);
  if (typeof Object(request).uid !== "string") return undefined;
  const warnings = [`${DISARMED_RULE} is disarmed until ${DISARMED_UNTIL}`];
  const auditAnnotations = { "disarmed-until": DISARMED_UNTIL };
  return { kind, apiVersion, response: { uid: request.uid, allowed: true, warnings, auditAnnotations } };
};

const toStatus = (code, reason, message) =>
  JSON.stringify({ kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message, reason, code });
