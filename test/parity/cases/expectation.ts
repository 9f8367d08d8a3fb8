import { isDeepStrictEqual } from "node:util";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import { describeCaseDifferences } from "../../../infra/catalogue/case-differences.ts";
import { buildReview, evaluateCase, getCasePhase } from "../../../infra/catalogue/cases.ts";
import type { CatalogueRule } from "../../../infra/catalogue/registry.ts";
import { type ComparableServerAnswer, formatAnswerDiff, toComparable } from "../compare.ts";
import {
  type CaseBodyBuilder,
  type CaseToSend,
  caseBodyBuilders,
  getFirstMessageLine,
  isAccepted,
  type ObservedTestServer,
  type SentCaseWithReviews,
  sendCase,
} from "./sending.ts";

/**
 * Either the reason why the API server can't send the case to the rule, or the difference between the API server's
 * answer and the case; without a difference, `diff` is absent. `buildBody` is the builder of the body that was sent.
 */
export type UnsendableReasonOrCaseDiff = { reason: string } | { diff?: string; buildBody: CaseBodyBuilder };

/**
 * Sends a case to the API server and compares the answer. A case may omit fields that the stored object has. So if the
 * answer differs, the case is sent again with these fields of the stored object.
 */
export const checkCaseAgainstApiServer = async (
  server: ObservedTestServer,
  question: CaseToSend,
  setup: string,
): Promise<UnsendableReasonOrCaseDiff> => {
  const first = await checkCaseWith(caseBodyBuilders, server, question, setup);
  if ("reason" in first || first.diff === undefined) return first;
  // Without the first builder, which sends the case's object unchanged.
  const second = await checkCaseWith(caseBodyBuilders.slice(1), server, question, setup);
  return "reason" in second || second.diff !== undefined ? first : second;
};

/**
 * Compares the API server's answer with the case. First sends the request without calling the rule, with each of these
 * bodies until one is accepted. This shows whether the API server sends the case to webhooks at all.
 */
const checkCaseWith = async (
  bodyBuilders: readonly CaseBodyBuilder[],
  server: ObservedTestServer,
  question: CaseToSend,
  setup: string,
): Promise<UnsendableReasonOrCaseDiff> => {
  const { listed, entry } = question;
  const phase = getCasePhase(entry);
  const given = entry[phase] ?? {};
  const tries: { buildBody: CaseBodyBuilder; withoutRule: SentCaseWithReviews }[] = [];
  for (const buildBody of bodyBuilders)
    if (!tries.some(({ withoutRule }) => isAccepted(withoutRule.answer)))
      tries.push({ buildBody, withoutRule: await sendCase(server, question, given, buildBody) });
  const accepted = tries.find(({ withoutRule }) => isAccepted(withoutRule.answer));
  if (accepted && !accepted.withoutRule.seen[phase])
    return { reason: "the API server sends such a request to no webhook" };
  // If no body is accepted, one that the API server refuses only after it has called the webhooks is used.
  const usable = accepted ?? tries.find(({ withoutRule }) => withoutRule.seen[phase]);
  if (!usable) return { reason: getFirstMessageLine(tries[0]?.withoutRule.answer.body) };

  const { buildBody, withoutRule } = usable;
  const withRule = await sendCase(server, question, given, buildBody, setup);
  // If a mutating webhook refuses an object before its validation, the API server's own warnings may be missing.
  const isRefusedEarly = phase === "mutate" && entry.refused !== undefined;
  const serverWarnings = withoutRule.answer.warnings.filter(
    (text) => !isRefusedEarly || withRule.answer.warnings.includes(text),
  );
  const warnings = [...serverWarnings, ...(entry.warnings ?? [])];
  const becomes = entry.becomes && (await sendCase(server, question, entry.becomes, buildBody));
  const isRefusalExpected = entry.refused !== undefined;
  const wanted = isRefusalExpected
    ? toExpectedRefusal(listed, entry, warnings)
    : { ...toStored(becomes ?? withoutRule), warnings };
  const actual = isRefusalExpected && !isAccepted(withRule.answer) ? toActualRefusal(withRule) : toStored(withRule);
  if (isDeepStrictEqual(wanted, actual)) return { buildBody };

  // An API server drops fields that its version doesn't know, so they never reach the rule.
  const [droppedField] = findFieldsOnlyInFirst(given, withoutRule.seen[phase]?.object);
  if (droppedField) return { reason: `the API server drops ${formatPath(droppedField)}` };
  // If the rule's answer differs only because the API server added a field, the case can't be compared.
  const addedField = await findAddedFieldThatExplains(question, withoutRule, withRule);
  return addedField
    ? { reason: `the API server always adds ${addedField}` }
    : { buildBody, diff: formatAnswerDiff(wanted, actual) };
};

/**
 * Returns an answer whose body is the stored object or, if validation refused that object (code 422), the object that
 * the last mutating webhook, which only observes, got. managedFields are dropped, as they list only fields that the
 * client sent: in the expected object, the client sends all of them; in the case's object, the rule adds some.
 */
const toStored = ({ seen, ...turn }: SentCaseWithReviews): ComparableServerAnswer => {
  const { answer } = turn;
  const body = answer.code === 422 && seen.mutate ? Object(seen.mutate.object) : answer.body;
  const { managedFields: _, ...metadata } = Object(body.metadata);
  return toComparable({ ...turn, answer: { ...answer, body: { ...body, metadata } } }, turn.name);
};

const buildDenialPrefix = ({ name }: CatalogueRule, { variant }: Case) =>
  `admission webhook "${variant === undefined ? "" : `${variant}.`}${name}.postern.dev" denied the request: `;
const toExpectedRefusal = (listed: CatalogueRule, entry: Case, warnings: string[]): ComparableServerAnswer => {
  const { refused, code = 403, reason = "Forbidden" } = entry;
  // Without a message, the API server shows the reason.
  return { code, warnings, body: { reason, message: `${buildDenialPrefix(listed, entry)}${refused || reason}` } };
};
const toActualRefusal = ({ answer: { code, warnings, body } }: SentCaseWithReviews): ComparableServerAnswer => {
  return { code, warnings, body: { reason: body.reason, message: body.message } };
};

/**
 * Finds a field that the API server adds to the case's object and that explains the difference: without this field, the
 * rule decides as the case states; with it, as the API server answered. Compares only refusals, no changes (`becomes`).
 */
const findAddedFieldThatExplains = async (
  { listed, entry }: CaseToSend,
  withoutRule: SentCaseWithReviews,
  withRule: SentCaseWithReviews,
): Promise<string | undefined> => {
  const phase = getCasePhase(entry);
  // The review that the rule got, as the observer (a webhook) saw it. The observer is called after a mutating rule and
  // sees its changes. So for such a rule, this is the review of the same request when it was sent without the rule.
  const received = phase === "mutate" ? withoutRule.seen.mutate : withRule.seen.validate;
  const review = buildReview(listed, entry);
  if (entry.becomes || !received) return;
  if (describeCaseDifferences(entry, await evaluateCase(listed, entry, review)).length > 0) return;

  const evaluateRefusal = async (request: AdmissionRequest) =>
    (await evaluateCase(listed, entry, { ...review, request })).outcome.status?.message;
  const refusal = await evaluateRefusal(received);
  if (refusal === entry.refused) return;
  const isAsAnswered = isAccepted(withRule.answer)
    ? refusal === undefined
    : withRule.answer.body.message === `${buildDenialPrefix(listed, entry)}${refusal}`;
  if (!isAsAnswered) return;
  for (const path of findFieldsOnlyInFirst(received.object, entry[phase])) {
    const object = structuredClone(received.object);
    deleteAt(object, path);
    if ((await evaluateRefusal({ ...received, object })) === entry.refused) return formatPath(path);
  }
};

type Path = (string | number)[];

/** Finds the paths of fields that the first object has and the second object lacks. */
const findFieldsOnlyInFirst = (first: unknown, second: unknown): Path[] => {
  if (!isContainer(first) || !isContainer(second)) return [];
  return Object.entries(first).flatMap(([name, value]): Path[] => {
    const key = Array.isArray(first) ? Number(name) : name;
    if (!Object.hasOwn(second, key)) return [[key]];
    return findFieldsOnlyInFirst(value, Reflect.get(second, key)).map((path) => [key, ...path]);
  });
};

const isContainer = (value: unknown): value is object => typeof value === "object" && value !== null;

const deleteAt = (object: unknown, [first = "", ...rest]: Path): void => {
  if (rest.length > 0) deleteAt(Reflect.get(Object(object), first), rest);
  else Reflect.deleteProperty(Object(object), first);
};

const formatPath = (path: Path) =>
  path
    .map((key) => (typeof key === "number" ? `[${key}]` : `.${key}`))
    .join("")
    .slice(1);
