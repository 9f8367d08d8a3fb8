import { type Circumstances, type Decision, decide } from "../decide.ts";
import { applied } from "../patch.ts";
import { type Recorded, recorded } from "../recorded.ts";
import type { KubernetesObject, Outcome, Request } from "../review.ts";
import type { Phase, Rule } from "../rule.ts";
import { frozen, merge } from "../settings.ts";
import { nameOf } from "../status.ts";
import { askedBy, type Origin, type Recording, requestOf } from "./recording.ts";
import { redacted } from "./redacted.ts";

/** A review that a rule has judged. */
export interface Judged {
  rule: Rule;
  phase: Phase;
  request: Request;
  circumstances: Circumstances;
  /** What it asked of the world; undefined where it needs nothing. */
  needs?: Recorded | undefined;
  decision: Decision;
}

/** Of one recording, in bytes. */
const longest = 1024 * 1024;

/**
 * What was judged as one line of a file of recordings. Its outcome is what the rule says, in mode enforce, to what is left
 * when secrets are out of it: it holds no more than that, and judging it again gives the same. Why there is none is thrown.
 */
export const lineOf = async (judged: Judged, origin: Omit<Origin, "redacted">): Promise<string> => {
  const recording = await recordingOf(judged, origin);
  const line = `- ${JSON.stringify(recording).replace(unsafe, escaped)}\n`;
  const bytes = Buffer.byteLength(line);
  if (bytes > longest) throw new Error(`it has ${bytes} bytes, and a recording at most ${longest}`);
  return line;
};

/** What JSON leaves as it is, and some reader takes for a line's end or for nothing at all. */
const unsafe = /[\u007f-\u009f\u2028\u2029\ufeff]/g;
const escaped = (one: string) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`;

const recordingOf = async (
  { rule, phase, request, circumstances, needs, decision }: Judged,
  origin: Omit<Origin, "redacted">,
): Promise<Recording> => {
  const { variant, now, mode } = circumstances;
  const settings = differing(circumstances.settings, rule.settings);
  const holdsSecret = [request.kind.kind, request.requestKind?.kind].includes("Secret");
  const clean = <T>(value: T): T => {
    const copy = redacted(value, holdsSecret);
    if (copy === undefined) throw new Error("there is too much of it to be recorded");
    // It has the form of what it was made from.
    return copy as T;
  };

  const asked = clean(askedBy(request, phase));
  const answers = needs && answerable(needs, clean(needs));
  const given = {
    ...asked,
    ...(variant !== undefined && { variant }),
    ...(Object.keys(settings).length > 0 && { settings: clean(settings) }),
    ...(answers && { needs: answers }),
    now: now.toISOString(),
  };
  const rest = requestOf(given);
  const again = await decide(rule, phase, rest, {
    ...circumstances,
    mode: "enforce",
    settings: frozen(merge(rule.settings ?? {}, given.settings)),
    world: answers && recorded(answers),
  });
  const isOther =
    again.refused !== decision.refused ||
    again.operations !== decision.operations ||
    (mode === "enforce" && told(again.outcome) !== told(clean(decision.outcome)));
  return {
    name: sentence(again, rest),
    ...given,
    // Of the two phases, the one that was judged is there.
    ...outcomeOf(again.outcome, asked[phase] as KubernetesObject),
    recorded: { ...origin, ...(isOther && { redacted: true }) },
  };
};

/** As JSON has them: what isn't there is as good as undefined. */
const told = (value: unknown): string => JSON.stringify(value);

const differing = (settings: object, defaults: object = {}): object =>
  Object.fromEntries(
    Object.entries(settings).filter(
      ([key, value]) => !Object.hasOwn(defaults, key) || told(Reflect.get(defaults, key)) !== told(value),
    ),
  );

/** A question that held a secret is told by what else it says: it will not be asked in these words again. */
const answerable = (before: Recorded, after: Recorded): Recorded => {
  const same = (one: object, other: object | undefined) =>
    Object.fromEntries(
      Object.entries(one).filter(
        ([key, value]) => key === "answer" || key === "url" || told(value) === told(Reflect.get(Object(other), key)),
      ),
    );
  const ways = (["https", "http", "aws"] as const).flatMap((way) => {
    const all = after[way]?.map((one, index) => same(one, before[way]?.[index]));
    return all ? [[way, all] as const] : [];
  });
  return { ...after, ...Object.fromEntries(ways) };
};

const outcomeOf = ({ status, patch = [], warnings = [], audit = {} }: Outcome, judged: KubernetesObject) => {
  const { code, reason, message, details } = status ?? {};
  const refusal = {
    ...(code !== 403 && code !== undefined && { code }),
    ...(reason !== "Forbidden" && { reason: reason ?? null }),
    ...(details && { details }),
  };
  return {
    ...(message !== undefined && { refused: message, ...refusal }),
    ...(!status && patch.length > 0 && { becomes: applied(judged, patch) as KubernetesObject }),
    ...(!status && patch.length === 0 && { admitted: true as const }),
    ...(warnings.length > 0 && { warnings }),
    ...(Object.keys(audit).length > 0 && { audit }),
  };
};

const sentence = ({ refused, operations }: Decision, request: Request): string => {
  const { operation, kind, subResource, namespace } = request;
  const what = [kind.kind, subResource].filter(Boolean).join("/");
  const whose = [what, [namespace, nameOf(request)].filter(Boolean).join("/")].join(" ").slice(0, 300);
  if (refused) return `refuses to ${operation} ${whose}`;
  return operations > 0 ? `changes ${whose} on ${operation}` : `admits ${operation} of ${whose}`;
};
