/** Loads the module that finds faults of reviews. In a bundle it is a file of its own, which no start reads. */
export const loadReviewFaults = () => import("./review-faults.ts");
