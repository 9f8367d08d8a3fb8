import { type Decision, decide } from "../decide.ts";
import type { Host } from "../endpoint.ts";
import type { Report } from "../log-line.ts";
import type { Request } from "../review.ts";
import { lineOf } from "./case-line.ts";
import { noting } from "./notes.ts";
import type { Judged, Origin } from "./recording.ts";
import type { Path } from "./redacted.ts";

/** A review that was answered, and can be kept. */
export interface Heard {
  origin: Omit<Origin, "redacted">;
  request: Request;
  /** As a line of a file of recordings, with the texts at these paths of its objects; why there is none is thrown. */
  line(keep?: readonly Path[]): Promise<string>;
}

/** What an endpoint, or a group's, is given in the place of its own, so that what it answers is heard. */
export interface Recorder {
  host: Host;
  judge: typeof decide;
}

/**
 * Hears every review of a cluster that is answered, after it is. A failure is no answer, and an invocation without HTTP is
 * somebody's trial. Of a group each member is heard by itself, for cases are of rules.
 */
export const recorder = (host: Host, heard: (one: Heard) => void): Recorder => {
  /** By the one object that all copies of a request share. */
  const open = new WeakMap<object, Judged[]>();

  const told = ({ request, cluster, key, code, version, group }: Report) => {
    const all = request && !group ? (open.get(request.userInfo) ?? []) : [];
    if (request && !group) open.delete(request.userInfo);
    if (code !== 200 || cluster === undefined || key === "direct") return;
    for (const judged of all) {
      const { name, now } = judged.circumstances;
      const origin = { rule: name, cluster, version, at: now.toISOString() };
      heard({ origin, request: judged.request, line: (keep) => lineOf(judged, origin, keep) });
    }
  };

  return {
    host: {
      ...host,
      journal: (report) => {
        host.journal(report);
        told(report);
      },
    },
    judge: (rule, phase, request, circumstances) => {
      const { mode, world } = circumstances;
      if (mode === "off") return decide(rule, phase, request, circumstances);
      // Of a group, members that need nothing are given the others' world.
      const notes = rule.needs && world && noting(world);
      const note = (decision: Decision): Decision => {
        const before = open.get(request.userInfo) ?? [];
        const judged = { rule, phase, request, circumstances, needs: notes?.noted(), decision };
        open.set(request.userInfo, [...before, judged]);
        return decision;
      };
      const decision = decide(rule, phase, request, notes ? { ...circumstances, world: notes.world } : circumstances);
      return decision instanceof Promise ? decision.then(note) : note(decision);
    },
  };
};
