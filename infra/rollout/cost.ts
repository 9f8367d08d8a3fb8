/** What a rule's reviews cost, from what is known of it. */
export interface Use {
  door: "http" | "url";
  memoryMegabytes: number;
  /** Of one review, billed. */
  milliseconds: number;
  /** Whether it asks a cluster: then it takes longer to start. */
  asks: boolean;
}

/** In US dollars, us-east-1, arm64; rough, for prices change and reviews differ. */
const price = {
  /** A million calls, where an HTTP API stands in front; 512 KB each. */
  gateway: 1,
  requests: 0.2,
  /** A gigabyte for a second, by the million. */
  compute: 13.3334,
  /** A gigabyte of logs; a review writes about one kilobyte. */
  logs: 0.5,
};

/** One call in a hundred finds no function that is warm. */
const coldShare = 0.01;

/** Dollars for a million reviews. */
export const costOfMillion = ({ door, memoryMegabytes, milliseconds, asks }: Use): number => {
  const gigabytes = memoryMegabytes / 1024;
  const start = asks ? 0.3 : 0.15;
  return (
    (door === "http" ? price.gateway : 0) +
    price.requests +
    price.compute * gigabytes * (milliseconds / 1000 + coldShare * start) +
    price.logs
  );
};
