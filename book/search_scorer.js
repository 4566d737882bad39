/* How the search weighs what it finds (Sphinx: html_search_scorer). As the default, but for `title`:
   a page whose whole title is asked for comes before pages with single words of it in a heading. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 10,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
