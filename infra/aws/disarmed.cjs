// What a disarmed version runs in its rule's place: it lets everything by until DISARMED_UNTIL, and says so. The rule's
// own code, rule.cjs, isn't even loaded before that, for it may be what doesn't start; from then on it decides again.
const { DISARMED_UNTIL = "", DISARMED_RULE = "this rule" } = process.env;

exports.handler = (event, context) => {
  if (!(Date.now() < Date.parse(DISARMED_UNTIL))) return require("./rule.cjs").handler(event, context);
  const isDirect = event.review !== undefined;
  const body = event.isBase64Encoded ? Buffer.from(event.body, "base64").toString() : event.body;
  const { kind, apiVersion, request } = isDirect ? event.review : JSON.parse(body);
  const response = {
    uid: request.uid,
    allowed: true,
    warnings: [`${DISARMED_RULE} is disarmed until ${DISARMED_UNTIL}`],
    auditAnnotations: { "disarmed-until": DISARMED_UNTIL },
  };
  const answer = { kind, apiVersion, response };
  if (isDirect) return Promise.resolve(answer);
  const headers = { "content-type": "application/json" };
  return Promise.resolve({ statusCode: 200, headers, body: JSON.stringify(answer), isBase64Encoded: false });
};
