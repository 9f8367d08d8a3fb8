import { type Decision, decide } from "../decide.ts";
import { frozen } from "../json.ts";
import { applied } from "../patch.ts";
import { nameOf } from "../refusals.ts";
import type { KubernetesObject, Outcome, Request } from "../review.ts";
import { merge } from "../settings.ts";
import { noReads, openReads } from "./reads.ts";
import { askedBy, type Judged, type Origin, type Recording, requestOf } from "./recording.ts";
import { openRedaction, type Path, type Redaction } from "./redacted.ts";
import { replaying, trace, untraced } from "./traced-decision.ts";

/** Of one recording, in bytes. */
const longest = 1024 * 1024;

/**
 * What was judged as one line of a file of recordings. Its outcome is what the rule says, in mode enforce, to what is left
 * when free text is replaced: it holds no more than that, and judging it again gives the same. What stands at the paths of
 * `keep`, in the object and the old one, stays. Why there is none is thrown.
 */
export const lineOf = async (
  judged: Judged,
  origin: Omit<Origin, "redacted">,
  keep: readonly Path[] = [],
): Promise<string> => {
  const recording = await recordingOf(judged, origin, keep);
  const line = `- ${JSON.stringify(recording).replace(unsafe, escaped)}\n`;
  const bytes = Buffer.byteLength(line);
  if (bytes > longest) throw new Error(`it has ${bytes} bytes, and a recording at most ${longest}`);
  return line;
};

/** What JSON leaves as it is, and some reader takes for a line's end or for nothing at all. */
const unsafe = /[\u007f-\u009f\u2028\u2029\ufeff]/g;
const escaped = (one: string) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`;

const recordingOf = async (
  judged: Judged,
  origin: Omit<Origin, "redacted">,
  keep: readonly Path[],
): Promise<Recording> => {
  const { rule, phase, request, circumstances, needs, decision } = judged;
  const { variant, now, mode } = circumstances;
  // A rule that copies what it is given by means that views don't allow is traced without them: nothing counts as read.
  // What it throws may quote anything; what is thrown below quotes what is left.
  const traced = await trace(judged, openReads())
    .catch(() => trace(judged, noReads))
    .catch(() => untraced);
  const isSecret = [request.kind.kind, request.requestKind?.kind].includes("Secret");
  const redact = openRedaction({ reads: traced.reads, isSecret });

  const asked = redact(askedBy(request, phase), [
    ...[phase, "oldObject"].flatMap((member) => keep.map((path) => [member, ...path])),
  ]);
  const settings = differing(circumstances.settings, rule.settings, redact);
  const given = {
    ...asked,
    ...(variant !== undefined && { variant }),
    ...(Object.keys(settings).length > 0 && { settings }),
    now: now.toISOString(),
  };
  const rest = requestOf(given);
  const again = needs && replaying(traced, redact);
  const second = await decide(rule, phase, rest, {
    ...circumstances,
    mode: "enforce",
    settings: frozen(merge(rule.settings ?? {}, given.settings)),
    world: again?.world,
  });
  const isOther =
    second.refused !== decision.refused ||
    second.operations !== decision.operations ||
    (mode === "enforce" && gistOf(second.outcome) !== gistOf(decision.outcome));
  const isRedacted = isOther || again?.isScriptBlind() === true;
  return {
    name: sentence(second, rest),
    ...given,
    ...(again && { needs: again.noted() }),
    // Of the two phases, the one that was judged is there.
    ...outcomeOf(second.outcome, asked[phase] as KubernetesObject),
    recorded: { ...origin, ...(isRedacted && { redacted: true }) },
  };
};

/** Of an outcome, what no text of the object is quoted in. */
const gistOf = ({ status, warnings = [], audit = {} }: Outcome): string =>
  JSON.stringify([status?.code, status?.reason, warnings.length, Object.keys(audit).length]);

/** The settings that differ from the defaults, redacted. */
const differing = (settings: object, defaults: object = {}, redact: Redaction): object => {
  const isUsual = (key: string, value: unknown) =>
    Object.hasOwn(defaults, key) && JSON.stringify(Reflect.get(defaults, key)) === JSON.stringify(value);
  const usual = Object.entries(settings).flatMap(([key, value]) => (isUsual(key, value) ? [key] : []));
  return Object.fromEntries(Object.entries(redact(settings)).filter(([key]) => !usual.includes(key)));
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
