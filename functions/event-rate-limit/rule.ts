import { toMap } from "postern/json";
import type { Event } from "postern/kubernetes/core/v1";
import { ledger, processLedger } from "postern/needs";
import { joinErrors, tooMany } from "postern/refusals";
import { rule } from "postern/rule";
import { type EventLimit, eventLimitTypes, getTokenBucketKey, takeToken } from "./token-bucket.ts";

const settings: { limits: EventLimit[]; eventsApi: boolean } = { limits: [], eventsApi: false };

const core = { apiGroups: [""], apiVersions: ["v1"], resources: ["events"], operations: ["CREATE", "UPDATE"] } as const;

export default rule({
  summary: "Limits the rate of events: in total, per namespace, per user, or per source and object.",
  order: 17,
  upstreamPlugin: { plugin: "EventRateLimit", settings: { eventsApi: false } },
  match: ({ eventsApi }) => [core, ...(eventsApi ? [{ ...core, apiGroups: ["events.k8s.io"] }] : [])],
  matchPolicy: "Exact",
  matchConditions: { "is-not-a-dry-run": "request.?dryRun.orValue(false) != true" },
  sideEffects: "NoneOnDryRun",
  settings,
  choices: { "limits.type": eventLimitTypes },
  checkSettings({ limits }) {
    if (limits.length === 0) return "must have at least one limit";
    for (const [index, limit] of limits.entries()) {
      const { type, qps, burst, cacheSize = 0, ...unknownMembers } = toMap(limit);
      const path = `limits[${index}]`;
      const [unknown] = Object.keys(unknownMembers);
      if (unknown !== undefined) return `must have only type, qps, burst and cacheSize in ${path}, not ${unknown}`;
      if (!eventLimitTypes.some((each) => each === type))
        return `must have one of ${eventLimitTypes.join(", ")} as type in ${path}, not ${type}`;
      for (const [name, value] of Object.entries({ qps, burst }))
        if (!isCount(value) || value === 0)
          return `must have a whole number from 1 as ${name} in ${path}, not ${value}`;
      if (type !== "Server" && !isCount(cacheSize))
        return `must have a whole number from 0 as cacheSize in ${path}, not ${cacheSize}`;
    }
  },
  needs: {
    buckets: ledger(),
    // The tokens that this process has taken from the buckets in advance.
    reserves: processLedger(),
  },

  async validate(event: Event, { request, settings: { limits, eventsApi }, now, buckets, reserves }) {
    const isLimited = request.kind.kind === "Event" && (request.kind.group === "" || eventsApi);
    if (!isLimited || request.dryRun) return;

    // As in upstream, an event takes a token of every limit, even if another limit refuses the event.
    const refused = await Promise.all(
      limits.map(async (limit, index) => {
        const key = getTokenBucketKey(limit, event, request);
        const isTaken = await takeToken(limit, `${index} ${key}`, now.getTime(), { buckets, reserves });
        return isTaken ? [] : [`limit reached on type ${limit.type} for key ${key}`];
      }),
    );
    if (refused.flat().length > 0) return { refuse: tooMany(joinErrors(refused.flat())) };
  },
});

/** Reports whether a value is a whole number from 0 to 2^31 - 1. */
const isCount = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) < 2 ** 31;
